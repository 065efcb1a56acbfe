"""Who did what: every action in the admin is in its history, in words, with the user."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.admin.utils import quote
from django.test import Client
from django.utils import timezone

from django_pgqueue import pause, set_limit
from django_pgqueue.models import Limit, Pause
from tests.support.factories import BatchFactory, JobFactory, QueueFactory, ScheduleFactory, WorkerFactory

from .helpers import body, url

pytestmark = pytest.mark.django_db

WAIT = "First wait before a retry, in seconds"
QUEUE = {"keep_done": "", "keep_failed": "", "backoff_base": "5", "backoff_ceiling": ""}
LIMIT = {"running": "3", "starts": "", "period": "", "burst": "", "on_conflict": "wait"}


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
    set_limit("acme", 1)
    return Limit.objects.get()


#: The model, its row (made by a function), the page, what is sent, and what the history says.
ACTIONS: list[tuple[str, Any, str, dict[str, Any], str]] = [
    ("job", lambda: job(failed=True), "retry", {}, "Action: Retry."),
    ("job", lambda: job(scheduled=True), "run", {}, "Action: Run now."),
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
]  # fmt: skip


@pytest.mark.parametrize(
    ("model", "make", "page", "data", "words"), ACTIONS, ids=[f"{row[0]}-{row[2]}" for row in ACTIONS]
)
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
    if row and page not in {"delete", "resume"}:
        assert words in body(root, url("history", quote(row.pk), model=model))


def test_a_pause_that_somebody_else_has_ended_is_not_in_the_history(root: Client) -> None:
    found = paused()
    pages = [root.get(url("change", found.pk, model="pause")).status_code]
    assert pages == [200]
    root.post(url("resume", found.pk, model="pause"))
    root.post(url("resume", found.pk, model="pause"))
    assert [entry.change_message for entry in LogEntry.objects.all()] == ["Resumed."]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("pause", "Action: Pause. Reason: a holiday"),
        ("resume", "Action: Resume."),
        ("run", "Action: Run now."),
    ],
)
def test_who_did_it_to_a_schedule(name: str, words: str, root: Client) -> None:
    paused_at = timezone.now() if name == "resume" else None
    row = ScheduleFactory.create(name="nightly", paused_at=paused_at)
    fields = {"names": '["nightly"]', "confirmed": "1", "reason": "a holiday"}
    assert root.post(url("act", name, model="schedule"), fields).status_code == 302
    [entry] = LogEntry.objects.all()
    assert (entry.user.get_username(), entry.get_change_message()) == ("root", words)
    assert words in body(root, url("history", row.pk, model="schedule"))
