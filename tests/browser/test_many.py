"""Actions on many jobs, by clicks: on selected rows, on all that match, and on a group of failures."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from django.contrib.admin.models import LogEntry
from django.db import connection, transaction
from django.db.models.functions import Now
from django.test import override_settings
from django.utils import timezone

from django_pgqueue.admin import JobAdmin
from django_pgqueue.admin.bulk import confirm
from django_pgqueue.jobs import chunks
from django_pgqueue.models import FailureGroup, Job
from tests.support.factories import JobFactory, WorkerFactory
from tests.support.failures import fold, note
from tests.support.waiting import until
from tests.support.workers import working

from .addresses import change
from .addresses import page as address
from .hands import SURE, press, said, tick

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from .conftest import Open

pytestmark = pytest.mark.browser

#: For each action of the list: a state that it changes, what the page says, and the new state.
ACTIONS: dict[str, tuple[dict[str, Any], str, dict[str, Any]]] = {
    "retry_jobs": ({"failed": True}, "2 jobs run again.", {"status": "pending"}),
    "run_now_jobs": ({"scheduled": True}, "2 jobs are due now.", {"run_after__lte": Now()}),
    "edit_jobs": ({"scheduled": True}, "2 jobs were edited.", {"priority": 3}),
    "extend_jobs": (
        {"running": True, "timeout": 300, "deadline": Now() + timedelta(minutes=5)},
        "2 jobs have one more hour each.",
        {"deadline__gt": Now() + timedelta(minutes=30)},
    ),
    "cancel_jobs": ({"scheduled": True}, "2 jobs were cancelled", {"status": "cancelled"}),
}


def listed(page: Page, queue: str, **filters: str) -> None:
    """Open the list of the jobs of a queue."""
    query = "&".join(f"{name}={value}" for name, value in {"queue": queue, **filters}.items())
    page.goto(f"{address('job_changelist')}?{query}")


# Without a script, the page is the same; only the checkbox that selects a whole page needs one.
@pytest.mark.parametrize("look", ["light", "plain"])
@pytest.mark.parametrize("action", ACTIONS)
def test_an_action_on_selected_jobs(action: str, look: str, window: Open) -> None:
    state, words, after = ACTIONS[action]
    queue = f"{action}-{look}"
    jobs = JobFactory.create_batch(3, queue_name=queue, **state)
    page = window(look, user="operator")
    listed(page, queue)
    tick(page, jobs[:2], action)
    if action != "extend_jobs":  # it harms nobody, and is not confirmed
        assert "2 jobs are selected. Nothing has changed yet." in page.locator("#content").inner_text()
        if action == "edit_jobs":
            page.fill("[name=priority]", "3")
        press(page, f"{SURE}|^save")
    assert words in said(page)
    found = Job.objects.filter(pk__in=[job.pk for job in jobs], **after)
    assert sorted(found.values_list("pk", flat=True)) == [job.pk for job in jobs[:2]]


def test_select_and_cancel_with_the_keyboard(window: Open) -> None:
    jobs = JobFactory.create_batch(3, queue_name="keyboard", scheduled=True)
    page = window(user="operator")
    listed(page, "keyboard")
    page.keyboard.type("jxjx")
    page.locator("select[name=action]").focus()
    page.keyboard.type("Cancel")
    press(page, "^(run|go)$", "Enter")
    press(page, SURE, "Enter")
    states = [job.status for job in Job.objects.filter(queue_name="keyboard").order_by("-pk")]
    assert states == ["cancelled", "cancelled", "pending"]
    assert len(jobs) == 3


@pytest.fixture
def background(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A queue for actions in the background, with a worker. Few jobs fill a page, are many, and take several
    chunks.
    """
    monkeypatch.setattr(JobAdmin, "list_per_page", 3)
    monkeypatch.setattr(confirm, "MOST_AT_ONCE", 2)
    monkeypatch.setattr(chunks, "FIRST_SIZE", 2)
    with override_settings(PGQUEUE={"BULK_QUEUE": "background"}), working(queues=("background",)):
        # No supervisor sends heartbeats of that worker.
        row = WorkerFactory.create(queues=["background"], heartbeat_at=timezone.now() + timedelta(hours=1))
        yield "background"
        row.delete()


def test_all_that_match_run_in_the_background_are_stopped_and_go_on(background: str, window: Open) -> None:
    jobs = JobFactory.create_batch(7, queue_name="many", scheduled=True)
    page = window(user="operator")
    listed(page, "many", status="pending")
    page.locator("#action-toggle").check()
    page.get_by_role("button", name="Select all that match, on every page").click()
    page.select_option("select[name=action]", "cancel_jobs")
    press(page, "^(run|go)$")
    assert "7 jobs are selected." in page.locator("#content").inner_text()
    assert "This runs in the background" in page.locator("#content").inner_text()
    with transaction.atomic():  # the second chunk waits for this row, until the user has pressed the button
        Job.objects.select_for_update().get(pk=jobs[2].pk)
        press(page, SURE)
        assert "runs in the background" in said(page)
        order = Job.objects.get(queue_name=background)
        assert page.url.endswith(change(order))
        page.get_by_text("2 of 7").first.wait_for()  # the page shows itself anew
        assert cancelled() == 2
        page.reload()
        press(page, "^cancel")
    until(lambda: Job.objects.get(pk=order.pk).is_finished)
    assert cancelled() == 4, "the chunk that was being worked on, and no other"
    page.reload()
    assert "Cancelled. 4 jobs were cancelled" in page.locator("#content").inner_text()
    press(page, "^retry")
    until(lambda: Job.objects.get(pk=order.pk).status == "done")
    assert cancelled() == 7
    page.reload()
    assert "7 jobs were cancelled" in page.locator("#content").inner_text()
    page.get_by_role("link", name="History").click()
    assert "Ended. Action: Cancel. 7 jobs were cancelled" in page.locator("#content").inner_text()
    entries = LogEntry.objects.filter(object_id=order.pk).order_by("pk")
    assert [entry.change_message.partition(".")[0] for entry in entries] == [
        "Started in the background", "Action: Cancel", "Cancelled", "Action: Retry", "Ended",
    ]  # fmt: skip


def cancelled() -> int:
    return Job.objects.filter(queue_name="many", status="cancelled").count()


@pytest.fixture
def group() -> FailureGroup:
    """A group of failures, of which two jobs have failed, and two wait for another attempt."""
    fingerprint = f"clicks{FailureGroup.objects.count()}"
    connection.ensure_connection()
    note(
        connection.connection,
        fingerprint,
        failed=2,
        retried=2,
        error_class="shop.Broken",
        message="by a click",
    )
    fold(connection.connection)
    for state in ("failed", "retrying"):
        JobFactory.create_batch(2, error_fingerprint=fingerprint, queue_name="clicks", **{state: True})
    return FailureGroup.objects.get(pk=fingerprint)


@pytest.mark.parametrize("look", ["phone", "plain"])
@pytest.mark.parametrize(
    ("button", "sentence", "changed"),
    [
        ("^retry the failed jobs", "2 failed jobs would run again.", ["pending", "retry"]),
        ("^cancel the waiting jobs", "2 waiting jobs would be cancelled.", ["cancelled", "failed"]),
    ],
)
def test_retry_or_cancel_a_group_of_failures(
    look: str, button: str, sentence: str, changed: list[str], group: FailureGroup, window: Open
) -> None:
    page = window(look, user="operator")
    page.goto(address("job_failure", group.pk))

    def states() -> list[str]:
        return sorted(Job.objects.filter(error_fingerprint=group.pk).values_list("status", flat=True))

    before = states()
    press(page, button)
    assert sentence in page.locator("#content").inner_text()
    assert states() == before, "it is only shown what would happen"
    press(page, SURE)
    assert states() == sorted(2 * changed)


@pytest.mark.parametrize("look", ["light", "plain"])
def test_mute_a_group_of_failures_and_unmute_it(look: str, group: FailureGroup, window: Open) -> None:
    page = window(look, user="operator")
    page.goto(address("job_failure", group.pk))
    press(page, "^mute")
    assert "muted by operator" in page.locator("#content").inner_text()
    group.refresh_from_db()
    assert group.muted_by == "operator"
    press(page, "^unmute", "Enter")
    assert said(page) == "The group is no longer muted."
    group.refresh_from_db()
    assert group.muted_at is None
