"""Who did what: every action in the admin is in its history, in words, with the user."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.contrib.admin.utils import quote
from django.test import Client
from django.utils import timezone

from django_pgqueue import pause, set_limit
from django_pgqueue.admin import JobAdmin
from django_pgqueue.admin.bulk import confirm
from django_pgqueue.models import Job, Limit, Pause, Schedule
from tests.support.factories import BatchFactory, JobFactory, QueueFactory, ScheduleFactory, WorkerFactory

from .helpers import ask, body, url

pytestmark = pytest.mark.django_db

WAIT = "First wait before a retry, in seconds"
QUEUE = {"retention": "", "failed_retention": "", "backoff_base": "5", "backoff_ceiling": ""}
LIMIT = {"concurrency": "3", "rate": "", "per": "", "burst": "", "on_full": "wait"}


def job(**options: Any) -> Any:
    return JobFactory.create(**options)


def batch(**options: Any) -> Any:
    made = BatchFactory.create(**options)
    JobFactory.create(batch_id=made.pk, failed=True)
    return made


def paused(**options: Any) -> Any:
    pause(queue="mail", **options)
    return Pause.objects.get()


def limit() -> Any:
    set_limit(name="acme", concurrency=1)
    return Limit.objects.get()


class Other(admin.SimpleListFilter):
    """A filter that a project adds."""

    title = parameter_name = "other"

    def lookups(self, request: Any, model_admin: Any) -> Any:
        return [("DE4711", "one")]

    def queryset(self, request: Any, queryset: Any) -> Any:
        return queryset.filter(kwargs__iban=self.value()) if self.value() else queryset


#: The model, its row (made by a function), the page, what is sent, and what the history says.
ACTIONS: list[tuple[str, Any, str, dict[str, Any], str]] = [
    ("job", lambda: job(failed=True), "retry", {}, "Action: Retry."),
    ("job", lambda: job(scheduled=True), "run_now", {}, "Action: Run now."),
    ("job", lambda: job(scheduled=True), "cancel", {}, "Action: Cancel."),
    (
        "job", lambda: job(running=True, deadline=timezone.now() + timedelta(minutes=1)), "extend", {},
        "Action: Give it one more hour.",
    ),
    ("job", lambda: job(scheduled=True), "edit", {"priority": "7"}, "Action: Edit (Priority: 7)."),
    ("jobbatch", batch, "retry", {}, "Action: Retry failed jobs."),
    ("jobbatch", batch, "cancel", {}, "Action: Cancel batch."),
    ("worker", WorkerFactory.create, "replace", {}, "Action: Replace this process."),
    ("worker", WorkerFactory.create, "stop", {}, "Action: Stop this worker (all processes)."),
    ("pause", None, "add", {"kind": "queue", "name": "mail", "reason": "the bank is down"}, "Added."),
    ("pause", paused, "change", {"reason": "still down"}, "Changed Reason."),
    ("pause", paused, "resume", {}, "Resumed."),
    ("queue", None, "add", {"name": "mail", **QUEUE}, "Added."),
    ("queue", lambda: QueueFactory.create(name="mail"), "change", QUEUE, f"Changed {WAIT}."),
    ("queue", lambda: QueueFactory.create(name="mail"), "delete", {"post": "yes"}, ""),
    ("limit", None, "add", {"name": "acme", **LIMIT}, "Added."),
    ("limit", limit, "change", LIMIT, "Changed Jobs at once."),
    ("limit", limit, "delete", {"post": "yes"}, ""),
    ("schedule", ScheduleFactory.create, "delete", {"post": "yes"}, ""),
    ("schedule", ScheduleFactory.create, "pause", {"reason": "a bug"}, "Action: Pause. Reason: a bug"),
    ("schedule", lambda: ScheduleFactory.create(paused_at=timezone.now()), "resume", {}, "Action: Resume."),
    ("schedule", ScheduleFactory.create, "enqueue", {}, "Action: Run now."),
]  # fmt: skip


@pytest.mark.parametrize(
    ("model", "make", "page", "data", "words"), ACTIONS, ids=[f"{row[0]}-{row[2]}" for row in ACTIONS]
)
@pytest.mark.promise("each-action-in-history")
def test_who_did_it(model: str, make: Any, page: str, data: dict[str, Any], words: str, root: Client) -> None:
    row = make() if make else None
    address = url(page, *([quote(row.pk)] if row else []), model=model)
    response = root.post(address, data)
    if response.status_code == 200:  # it asks first
        fields = {"confirmed": "1", "_selected_action": row.pk} if row else {}
        if 'name="confirmed" value="' in (html := response.content.decode()):
            fields["confirmed"] = html.split('name="confirmed" value="')[1].split('"')[0]
        response = root.post(address, {**data, **fields})
    assert response.status_code == 302, response.context["errors"]
    [entry] = LogEntry.objects.all()
    assert (entry.user.get_username(), entry.get_change_message()) == ("root", words)
    assert entry.object_repr
    if row and page != "delete" and (model, page) != ("pause", "resume"):
        history = body(root, url("history", quote(row.pk), model=model))
        assert words in history
        assert "root" in history


def test_a_pause_that_somebody_else_has_ended_is_not_in_the_history(root: Client) -> None:
    found = paused()
    root.post(url("resume", found.pk, model="pause"))
    root.post(url("resume", found.pk, model="pause"))
    assert [entry.change_message for entry in LogEntry.objects.all()] == ["Resumed."]


@pytest.mark.parametrize("most", [0, 500], ids=["in the request", "few jobs"])
@pytest.mark.promise("redaction-history")
def test_what_was_searched_is_not_in_the_history(
    root: Client, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """More users read it than may view the arguments, which a search finds, too."""
    monkeypatch.setattr(confirm, "MOST_AT_ONCE", most)
    found = [job(scheduled=True, kwargs={"iban": "DE4711"}) for _number in range(2)]
    query = "q=DE4711&queue=default&other=DE4711"
    monkeypatch.setattr(JobAdmin, "list_filter", (*JobAdmin.list_filter, Other))
    ask(root, "cancel_jobs", *found, query=query).confirm(root)
    entries = list(LogEntry.objects.all())
    assert all("q=…, queue=default, other=…" in entry.change_message for entry in entries)
    assert entries
    assert "DE4711" not in "".join(f"{entry.change_message}{entry.object_repr}" for entry in entries)


def test_the_batch_that_was_searched_is_in_the_history(root: Client) -> None:
    of = BatchFactory.create()
    found = [job(scheduled=True, batch=of) for _number in range(2)]
    ask(root, "cancel_jobs", *found, query=f"q=batch:{of.pk}").confirm(root)
    messages = {entry.change_message for entry in LogEntry.objects.all()}
    assert messages == {f"Action: Cancel. One of 2 jobs. Filters: q=batch:{of.pk}."}


def told() -> dict[str | None, str]:
    """Return what the history says, by the id of the job."""
    return dict(LogEntry.objects.values_list("object_id", "change_message"))


def test_a_job_that_was_left_alone_has_no_entry(root: Client) -> None:
    first, second = (job(failed=True, unique_key="order:5", unique_scope="live") for _number in range(2))
    page = ask(root, "retry_jobs", first, second)
    said, _level = page.confirm(root)
    assert said.startswith("1 job runs again. 1 other was left alone")
    assert told() == {str(first.pk): "Action: Retry."}


def test_a_job_that_has_the_wanted_values_has_no_entry(root: Client) -> None:
    first, second = (job() for _number in range(2))
    page = ask(root, "edit_jobs", first, second)
    Job.objects.filter(pk=first.pk).update(priority=7)
    root.post(page.address, {**page.fields, "priority": "7"})
    assert list(told()) == [str(second.pk)]


def test_an_action_on_very_many_jobs_has_one_entry(root: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confirm, "MOST_AT_ONCE", 2)
    soon = timezone.now() + timedelta(minutes=1)
    rows = [job(running=True, deadline=soon).pk for _number in range(3)]
    data = {"action": "extend_jobs", "_selected_action": rows, "index": 0}
    root.post(f"{url('changelist')}?status=running", data)
    words = "Action: Give it one more hour. Filters: status=running. 3 jobs have one more hour each."
    assert told() == {None: words}


def test_a_pause_that_was_over_before_the_button_has_no_entry(
    root: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Race: it ends after it was read."""
    paused()
    monkeypatch.setattr("django_pgqueue.admin.overview.resume", lambda **target: False)
    root.post(url("overview"), {"button": "resume", "queue": "mail"})
    assert told() == {}


def test_each_of_many_schedules_has_its_entry(root: Client) -> None:
    rows = Schedule.objects.bulk_create(ScheduleFactory.build_batch(101))
    names = [row.pk for row in rows]
    data = {"action": "pause_schedules", "_selected_action": names, "confirmed": "1", "reason": "a holiday"}
    root.post(url("changelist", model="schedule"), data)
    assert set(told()) == set(names)
