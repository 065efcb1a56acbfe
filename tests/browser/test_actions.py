"""Each action, by clicks, as somebody who may do exactly this: from the page to what has changed."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from django_pgqueue.models import Job, JobBatch, Pause, Schedule, Worker
from tests.support.waiting import until

from .addresses import change

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from .conftest import Open

pytestmark = pytest.mark.browser


SURE = "^yes"


def press(page: Page, name: str) -> None:
    """Press the button of this name, and wait for the next page."""
    button = page.locator("#content").get_by_role("button", name=re.compile(name, re.IGNORECASE)).first
    with page.expect_navigation():
        button.click()


def job(**wanted: Any) -> Job:
    """Return the newest job like this in the demonstration."""
    return Job.objects.filter(queue_name__startswith="demo-", **wanted).latest("pk")


def test_retry_a_failed_job(window: Open) -> None:
    failed = job(status="failed")
    page = window(user="operator")
    page.goto(change(failed))
    press(page, "^retry")
    assert Job.objects.get(pk=failed.pk).status == "pending"


def test_cancel_a_waiting_job(window: Open) -> None:
    waiting = job(status="pending")
    page = window("phone", user="operator")
    page.goto(change(waiting))
    press(page, "^cancel")
    assert Job.objects.get(pk=waiting.pk).status == "cancelled"


def test_edit_a_waiting_job(window: Open) -> None:
    waiting = job(status="pending")
    page = window(user="operator")
    page.goto(change(waiting))
    press(page, "^edit")
    page.fill("input[name=priority]", "7")
    press(page, "save|edit|change")
    assert Job.objects.get(pk=waiting.pk).priority == 7


def test_pause_a_queue_and_resume_it(window: Open) -> None:
    page = window(user="operator")
    page.goto("/admin/django_pgqueue/pause/add/")
    page.select_option("select[name=kind]", "queue")
    page.fill("input[name=name]", "demo-reports")
    page.fill("[name=reason]", "a <b>test</b>")
    page.get_by_role("button", name="Save", exact=True).click()
    pause = Pause.objects.get(name="demo-reports")
    assert pause.author == "operator"
    page.goto(change(pause))
    press(page, "^resume")
    assert not Pause.objects.filter(pk=pause.pk).exists()


@pytest.mark.parametrize(("button", "how", "pid"), [("^replace", "replace", 4211), ("^stop", "stop", 4212)])
def test_drain_a_worker(button: str, how: str, pid: int, window: Open) -> None:
    worker = Worker.objects.get(host="demo-app-1", pid=pid)
    page = window(user="operator")
    page.goto(change(worker))
    press(page, button)
    press(page, SURE)
    assert Worker.objects.get(pk=worker.pk).drain == how


def test_run_a_schedule_pause_it_and_resume_it(window: Open) -> None:
    schedule = Schedule.objects.get(name="demo-daily-sales")
    jobs = Job.objects.filter(task_path=schedule.task_path)
    before = jobs.count()
    page = window(user="operator")
    page.goto(change(schedule))
    press(page, "^run now")
    press(page, SURE)
    assert jobs.count() == before + 1
    page.goto(change(schedule))
    press(page, "^pause")
    page.fill("input[name=reason]", "a <b>test</b>")
    press(page, SURE)
    schedule.refresh_from_db()
    assert (schedule.paused_by, schedule.pause_reason) == ("operator", "a <b>test</b>")
    page.goto(change(schedule))
    press(page, "^resume")
    press(page, SURE)
    schedule.refresh_from_db()
    assert schedule.paused_at is None


def test_cancel_a_batch(window: Open) -> None:
    batch = JobBatch.objects.get(name="demo: orders of Monday")
    page = window(user="operator")
    page.goto(change(batch))
    press(page, "^cancel")
    press(page, SURE)
    batch.refresh_from_db()
    assert batch.cancel_requested_at is not None


# Without a script, the page is the same; only the checkbox that selects a whole page needs one.
@pytest.mark.parametrize("look", ["light", "plain"])
def test_cancel_selected_jobs(look: str, window: Open) -> None:
    page = window(look, user="operator")
    page.goto("/admin/django_pgqueue/job/?status=pending&queue=demo-sync")
    boxes = page.locator("input.action-select")
    chosen = [int(boxes.nth(number).get_attribute("value") or 0) for number in range(3)]
    for number in range(3):
        boxes.nth(number).check()
    page.select_option("select[name=action]", label="Cancel selected jobs")
    press(page, "^run")
    assert "3" in page.locator("#content").inner_text()
    press(page, SURE)
    until(
        lambda: set(Job.objects.filter(pk__in=chosen).values_list("status", flat=True)) == {"cancelled"},
        what="the jobs to be cancelled",
    )
