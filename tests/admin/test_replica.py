"""A router that reads from a replica: whatever changes something changes it in the other database."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.admin.utils import quote
from django.db import connections
from django.test import Client

from django_pgqueue import pause, set_limit
from django_pgqueue.jobs.enqueue import enqueue
from django_pgqueue.models import FailureGroup, Job, Limit, Pause
from tests.app import tasks
from tests.support.factories import BatchFactory, JobFactory, QueueFactory, ScheduleFactory, WorkerFactory
from tests.support.failures import fold, note

from .helpers import url

pytestmark = pytest.mark.django_db(databases=["default", "other"])

_TABLES = """
    SELECT relname FROM pg_class JOIN pg_namespace AS space ON space.oid = relnamespace
    WHERE nspname = current_schema() AND relkind = 'r' AND relname LIKE 'pgqueue%'
"""


class Replica:
    """Reads what belongs to the queue from the database "other"."""

    def db_for_read(self, model: Any, **hints: Any) -> str | None:
        return "other" if model._meta.app_label == "django_pgqueue" else None

    def db_for_write(self, model: Any, **hints: Any) -> str | None:
        return "default" if model._meta.app_label == "django_pgqueue" else None


def stored(alias: str) -> dict[str, Any]:
    """Return what the tables of the queue contain, as checksums."""
    with connections[alias].cursor() as cursor:
        cursor.execute(_TABLES)
        names = sorted(name for (name,) in cursor.fetchall())
        parts = [f"SELECT '{name}', count(*), sum(hashtext(t::text)) FROM {name} AS t" for name in names]
        cursor.execute(" UNION ALL ".join(parts))
        return {name: rest for name, *rest in cursor.fetchall()}


def paused() -> Pause:
    pause(queue="mail")
    return Pause.objects.get()


def limited() -> Limit:
    set_limit(name="acme", concurrency=1)
    return Limit.objects.get()


def failures() -> FailureGroup:
    raw = connections["default"].connection
    note(raw, "f")
    fold(raw)
    return FailureGroup.objects.get()


def batch() -> Any:
    made = BatchFactory.create()
    Job.objects.using("other").bulk_create([JobFactory.create(batch_id=made.pk, failed=True)])
    return made


SCHEDULE = {
    "name": "nightly", "task_path": "tests.app.tasks.noop", "args": "[]", "kwargs": "{}", "queue_name": "",
    "priority": "0", "cron": "* * * * *", "timezone": "UTC", "jitter": "0", "catch_up": "all",
    "catch_up_limit": "5", "overlap": "skip",
}  # fmt: skip
#: What it is, the row (made by a function), the page, and what is sent.
CHANGES: dict[str, tuple[str, Any, str, dict[str, Any]]] = {
    "retry a job": ("job", lambda: JobFactory.create(failed=True), "retry", {}),
    "edit a job": ("job", JobFactory.create, "edit", {"priority": "7"}),
    "copy a job": ("job", lambda: enqueue(tasks.noop), "clone", {"args": "[]", "kwargs": "{}"}),
    "mute failures": ("job", failures, "failure_mute", {}),
    "pause on the overview": ("job", None, "overview", {"button": "pause", "queue": "mail"}),
    "resume on the overview": ("job", paused, "overview", {"button": "resume", "queue": "mail"}),
    "retry a batch": ("jobbatch", batch, "retry", {}),
    "stop a worker": ("worker", WorkerFactory.create, "stop", {}),
    "pause": ("pause", None, "add", {"kind": "queue", "name": "mail", "reason": "a test"}),
    "change a pause": ("pause", paused, "change", {"reason": "a test"}),
    "resume": ("pause", paused, "resume", {}),
    "add a queue": ("queue", None, "add", {"name": "mail"}),
    "change a queue": ("queue", lambda: QueueFactory.create(name="mail"), "change", {"backoff_base": "9"}),
    "delete a queue": ("queue", lambda: QueueFactory.create(name="mail"), "delete", {"post": "yes"}),
    "change a limit": ("limit", limited, "change", {"concurrency": "3", "on_full": "wait"}),
    "delete a limit": ("limit", limited, "delete", {"post": "yes"}),
    "add a schedule": ("schedule", None, "add", SCHEDULE),
    "change a schedule": ("schedule", ScheduleFactory.create, "change", {**SCHEDULE, "cron": "5 5 * * *"}),
    "pause a schedule": ("schedule", ScheduleFactory.create, "pause", {}),
    "run a schedule": ("schedule", ScheduleFactory.create, "enqueue", {}),
    "delete a schedule": ("schedule", ScheduleFactory.create, "delete", {"post": "yes"}),
}


@pytest.mark.parametrize("what", CHANGES)
def test_what_is_changed_is_changed_where_one_writes(what: str, root: Client, settings: Any) -> None:
    model, make, page, data = CHANGES[what]
    row: Any = make() if make else None
    if row is not None:
        type(row)._default_manager.using("other").bulk_create([row])
    address = url(page, *([quote(row.pk)] if row and page != "overview" else []), model=model)
    settings.DATABASE_ROUTERS = [Replica()]
    before = {alias: stored(alias) for alias in ("default", "other")}
    response = root.post(address, data)
    if response.status_code == 200:  # it asks first
        fields = {"confirmed": "1"}
        if 'name="confirmed" value="' in (html := response.content.decode()):
            fields["confirmed"] = html.split('name="confirmed" value="')[1].split('"')[0]
        response = root.post(address, {**data, **fields})
    assert response.status_code == 302
    assert stored("other") == before["other"]
    assert stored("default") != before["default"]
