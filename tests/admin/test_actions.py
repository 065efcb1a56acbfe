"""The actions on a job: the buttons of its page, what they change, and that the history has every action."""

from __future__ import annotations

import html
import json
import re
from datetime import timedelta
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.admin.models import CHANGE, LogEntry
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from django_pgqueue import cancel, enqueue, pause
from django_pgqueue.admin import JobAdmin
from django_pgqueue.admin.bulk import confirm
from django_pgqueue.models import Job, Schedule
from django_pgqueue.redaction import REDACTED
from tests.app import secret_tasks, unique_tasks
from tests.receipts.models import Order, Receipt
from tests.support.factories import BatchFactory, JobFactory, QueueFactory, ScheduleFactory, WorkerFactory
from tests.support.jobs import sql

from .helpers import STATES, act, ask, body, post, staff, url, words

pytestmark = pytest.mark.django_db

ACTIONS = ("retry", "run_now", "edit", "extend", "cancel")


def test_nothing_of_the_queues_own_can_be_edited(root: Client) -> None:
    """Nor added or deleted: `test_access`. Not even by a subclass that lets people change it."""
    job = JobFactory.create()
    for address in (url("change", job.pk), url("change", WorkerFactory.create().pk, model="worker")):
        assert root.post(address, {"status": "done"}).status_code == 403
        page = body(root, address)
        assert "_save" not in page
        assert "deletelink" not in page

    class Careless(JobAdmin):
        def has_change_permission(self, request: Any, obj: Any = None) -> bool:
            return True

    request = root.get(url("changelist")).wsgi_request
    assert Careless(Job, admin.site).get_form(request, job, change=True).base_fields == {}


@pytest.mark.parametrize(
    ("options", "offered"),
    [
        ({}, "edit cancel"), ({"scheduled": True}, "run_now edit cancel"), (STATES["blocked"], "edit cancel"),
        (STATES["retry"], "retry run_now edit cancel"), (STATES["running"], "cancel"),
        ({**STATES["running"], "deadline": timezone.now()}, "extend cancel"),
        ({**STATES["running"], "cancel_requested_at": timezone.now()}, ""),
        *((STATES[state], "retry") for state in ("done", "failed", "cancelled")),
    ],
)  # fmt: skip
def test_buttons_offer_what_can_be_done_now(root: Client, options: dict[str, Any], offered: str) -> None:
    job = JobFactory.create(**options)
    page = body(root, url("change", job.pk))
    found = [name for name in ACTIONS if f'action="{url(name, job.pk)}"' in page]
    assert found == offered.split()


def test_when_nothing_changes_it_says_why(root: Client) -> None:
    for action, state in (
        ("retry", "running"),
        ("cancel", "done"),
        ("run_now", "pending"),
        ("extend", "running"),
    ):
        message, kind = act(root, f"{action}_jobs", JobFactory.create(**STATES[state]))
        assert message.startswith("No job changed: ")
        assert kind == "warning"
    assert not LogEntry.objects.exists()


@pytest.mark.parametrize("across", [0, 1])
def test_more_time_is_for_running_jobs_and_locks_none_of_the_history(root: Client, across: int) -> None:
    """A job that was over in time keeps its deadline there."""
    soon = timezone.now() + timedelta(minutes=1)
    running, over = (JobFactory.create(deadline=soon, **{state: True}) for state in ("running", "done"))
    keys = [running.pk, over.pk, JobFactory.create(running=True).pk]
    data = {"action": "extend_jobs", "_selected_action": keys, "select_across": across, "index": 0}
    assert post(root, url("changelist"), **data) == ("1 job has one more hour.", "success")
    deadline = Job.objects.get(pk=running.pk).deadline
    assert deadline is not None
    assert deadline > timezone.now() + timedelta(minutes=59)
    assert sql("SELECT xmax = '0' FROM pgqueue_job WHERE id = %s", over.pk)
    assert told() == {str(running.pk): "Action: Give it one more hour."}


def test_a_job_that_was_failed_on_its_page_and_is_done_by_now_does_not_run_again(root: Client) -> None:
    done, running = JobFactory.create(done=True), JobFactory.create(running=True)
    assert '<input type="hidden" name="status" value="done">' in body(root, url("change", done.pk))
    told = post(root, url("retry", done.pk), status="failed")
    assert told == ("No job changed: this job is now done.", "warning")
    assert Job.objects.get(pk=done.pk).status == "done"
    assert post(root, url("cancel", running.pk), status="pending")[1] == "success", "it is asked to stop"
    assert post(root, url("retry", done.pk), status="done") == ("1 job runs again.", "success")


def test_a_stale_tab_says_what_it_did(root: Client) -> None:
    for state, name, second in (
        ("failed", "retry", "this job is now pending."), ("pending", "cancel", "this job is now cancelled."),
        ("running", "cancel", ""),
    ):  # fmt: skip
        job = JobFactory.create(**STATES[state])
        assert post(root, url(name, job.pk), status=state)[1] == "success"
        told, level = post(root, url(name, job.pk), status=state)
        assert (told.startswith(f"No job changed: {second}"), level) == (True, "warning")


def test_a_button_leads_back_to_the_job_with_its_filters(root: Client) -> None:
    job = JobFactory.create(failed=True)
    query = "_changelist_filters=status%3Dfailed"
    assert f'action="{url("retry", job.pk)}?{query}"' in body(root, f"{url('change', job.pk)}?{query}")
    response = root.post(f"{url('retry', job.pk)}?{query}")
    assert response["Location"] == f"{url('change', job.pk)}?{query}"


def test_a_job_that_its_queue_does_not_keep(root: Client) -> None:
    QueueFactory.create(name="forgetful", retention=timedelta(0))
    job = JobFactory.create(queue_name="forgetful")
    assert root.post(url("cancel", job.pk))["Location"] == url("changelist")
    assert root.post(url("cancel", job.pk))["Location"] == reverse("admin:index")


# --- A copy of a job: the page "Enqueue again"


SIGN_IN = secret_tasks.sign_in.module_path


def clone(client: Client, job: Job, **values: Any) -> Any:
    """Fill in the form as it is shown, with some other values."""
    form = client.get(url("clone", job.pk)).context["form"]
    given = {name: form[name].value() for name in form.fields}
    texts = {name: "" if value is None else str(value) for name, value in {**given, **values}.items()}
    return client.post(url("clone", job.pk), texts)


def test_a_copy_has_other_values_and_those_that_are_not_shown() -> None:
    client = staff("view_job", "view_arguments_job", "clone_job")
    job = JobFactory.create(
        task_path=SIGN_IN, args=["ann", "hunter2"], kwargs={"api_key": "k-1"}, failed=True, priority=3,
        queue_name="mail", metadata={"request": 7},
    )  # fmt: skip
    page = body(client, url("clone", job.pk))
    assert "hunter2" not in page
    assert "k-1" not in page
    soon = timezone.localtime() + timedelta(hours=1)
    response = clone(client, job, args=json.dumps(["bob", REDACTED]), run_after=f"{soon:%Y-%m-%dT%H:%M:%S}")
    made = Job.objects.exclude(pk=job.pk).get()
    assert response.url == url("change", made.pk)
    assert (made.args, made.kwargs) == (["bob", "hunter2"], {"api_key": "k-1"})
    assert (made.task_path, made.queue_name, made.priority) == (SIGN_IN, "mail", 3)
    assert (made.metadata, made.status, made.max_attempts) == ({"request": 7}, "pending", 1)
    assert abs(made.run_after - soon) < timedelta(seconds=2)
    assert {(entry.object_id, str(entry)) for entry in LogEntry.objects.all()} == {
        (str(job.pk), f"Changed “{job}” — Enqueued again as job {made.pk}."),
        (str(made.pk), f"Added “{made}”."),
    }


MISTAKES: list[dict[str, str]] = [
    {"args": '["ann"]'}, {"args": "[", "kwargs": "{}"}, {"args": '{"user": "ann"}'}, {"kwargs": "[]"},
    {"kwargs": '{"more": 1}'}, {"kwargs": '{"api_key": "a\\u0000b"}'}, {"priority": "101"},
    {"args": f'["ann", "x", "{REDACTED}"]'}, {"queue_name": "no queue!"},
]  # fmt: skip


def test_a_copy_is_checked_as_an_enqueue_is(root: Client, wording: Any) -> None:
    job, gone = (JobFactory.create(task_path=path, args=["ann", "x"]) for path in (SIGN_IN, "gone.tasks.x"))
    said = {}
    for copied, values in (*((job, each) for each in MISTAKES), (gone, {"args": "[]"})):
        page = clone(root, copied, **values).content.decode()
        [errors, *_] = re.findall(r'<ul class="errorlist[^>]*>.*?</ul>', page)
        said[f"{copied.task_path}: {values}"] = words(errors)
    assert said == wording
    assert (Job.objects.count(), LogEntry.objects.count()) == (2, 0)


def test_a_copy_with_a_unique_key_that_is_taken_is_the_other_job(root: Client) -> None:
    job = enqueue(unique_tasks.index, 5)
    response = clone(root, job)
    assert (Job.objects.count(), response.url) == (1, url("change", job.pk))
    assert "has the unique key of this call" in body(root, response.url)
    once = enqueue(unique_tasks.once, "a")
    refused = html.unescape(clone(root, once).content.decode()).split("errorlist")[1]
    assert f"Job {once.pk} has the unique key" in refused


def test_a_copy_that_replaces_the_arguments_of_a_waiting_job_is_told_as_such(root: Client) -> None:
    over = enqueue(unique_tasks.render, 5, "old")
    cancel(over)
    waiting = enqueue(unique_tasks.render, 5, "new")
    response = clone(root, over, args='[5, "old"]')
    assert response.url == url("change", waiting.pk)
    assert f"job {waiting.pk}, which has the unique key" in body(root, response.url)
    assert Job.objects.get(pk=waiting.pk).args == [5, "old"]
    [entry] = LogEntry.objects.all()
    assert (entry.object_id, entry.action_flag) == (str(waiting.pk), CHANGE)
    assert entry.get_change_message() == f"Got the values of a copy of job {over.pk}."


def test_a_payload_is_copied_by_adding_a_row(root: Client) -> None:
    row = Receipt.objects.create(order=Order.objects.create(), email="a@b.c")
    assert "/clone/" not in body(root, url("change", row.pk))
    assert root.get(url("clone", row.pk)).headers["Location"] == url("change", row.pk)
    assert root.get(url("clone", 0)).status_code == 302


# --- Who did what: every action in the admin is in its history, in words, with the user


job: Any = JobFactory.create


class Other(admin.SimpleListFilter):
    """A filter that a project adds."""

    title = parameter_name = "other"

    def lookups(self, request: Any, model_admin: Any) -> Any:
        return [("DE4711", "one")]

    def queryset(self, request: Any, queryset: Any) -> Any:
        return queryset.filter(kwargs__iban=self.value()) if self.value() else queryset


def told() -> dict[str | None, str]:
    """Return what the history says, by the id of the job."""
    return dict(LogEntry.objects.values_list("object_id", "change_message"))


def test_a_pause_that_somebody_else_has_ended_is_not_in_the_history(root: Client) -> None:
    found = pause(queue="mail")
    for _tab in range(2):
        root.post(url("resume", found.pk, model="pause"))
    assert [entry.change_message for entry in LogEntry.objects.all()] == ["Resumed."]


@pytest.mark.parametrize("most", [0, 500], ids=["in the request", "few jobs"])
@pytest.mark.promise("redaction-history")
def test_what_was_searched_is_in_no_history(root: Client, monkeypatch: pytest.MonkeyPatch, most: int) -> None:
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
    assert {*told().values()} == {f"Action: Cancel. One of 2 jobs. Filters: q=batch:{of.pk}."}


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


def test_a_pause_over_before_the_button_has_no_entry(root: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Race: it ends after it was read."""
    pause(queue="mail")
    monkeypatch.setattr("django_pgqueue.admin.overview.resume", lambda **target: False)
    root.post(url("overview"), {"button": "resume", "queue": "mail"})
    assert told() == {}


def test_each_of_many_schedules_has_its_entry(root: Client) -> None:
    names = [row.pk for row in Schedule.objects.bulk_create(ScheduleFactory.build_batch(101))]
    data = {"action": "pause_schedules", "_selected_action": names, "confirmed": "1", "reason": "a holiday"}
    root.post(url("changelist", model="schedule"), data)
    assert set(told()) == set(names)
