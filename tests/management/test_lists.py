"""``manage.py pgqueue queues`` and ``limits``: the same figures as in the admin."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from django.db import connection

from django_pgqueue import RateLimit, enqueue_many, set_limit
from django_pgqueue.management._output import Table
from django_pgqueue.models import Job, Limit, Queue
from tests.app import limit_tasks as tasks
from tests.app.tasks import noop
from tests.support.factories import JobFactory, JobStatFactory, WorkerFactory

from .test_subcommands import run

pytestmark = pytest.mark.django_db(databases=["default", "other"])


def test_queues() -> None:
    assert run("queues") == "No queue is in use."
    WorkerFactory.create()
    JobFactory.create_batch(2, queue_name="mail")
    JobFactory.create(queue_name="mail", scheduled=True)
    JobFactory.create(queue_name="mail", failed=True)
    JobFactory.create(queue_name="reports", running=True)
    JobStatFactory.create(queue_name="mail", done=7200)
    Queue.objects.create(name="mail", retention=timedelta(days=1), failed_retention=timedelta(0))
    set_limit(queue="mail", concurrency=5, rate_limit=RateLimit(100, per=60))
    head, mail, reports = run("queues").splitlines()
    assert head.split("  ")[0] == "Queue"
    assert mail.split()[:6] == ["mail", "2", "1", "0", "0", "0"]
    assert mail.endswith("1  5; 100 a minute         1 d           0 s")
    assert reports.endswith("1                -         7 d          30 d")
    [row] = json.loads(run("queues", "--json", "--queue", "mail"))
    expected = {
        "queue_name": "mail", "ready": 2, "scheduled": 1, "retrying": 0, "blocked": 0, "running": 0,
        "workers": 1, "is_paused": False, "lost": 0, "failed_in_24_hours": 1,
        "limit": {"concurrency": 5, "rate": 100, "per": 60.0, "burst": 1},
        "retention": 86400.0, "failed_retention": 0.0,
    }  # fmt: skip
    assert {name: row[name] for name in expected} == expected
    assert row["per_second"] > 0
    assert run("queues", database="other") == "No queue is in use."


def declare(name: str, concurrency: int) -> None:
    """Write a limit, as workers do."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT _pgqueue_declare_limits(ARRAY[%s], ARRAY[%s], ARRAY['wait'])", [name, concurrency]
        )


def test_limits() -> None:
    assert run("limits") == "There is no limit. Workers write those that the code declares."
    task = tasks.two.module_path
    declare(task, 2)
    declare("tenant", 1)
    set_limit(name="tenant", concurrency=3)
    set_limit(queue="mail", rate_limit=RateLimit(100, per=60, burst=10))
    set_limit(everything=True, concurrency=50)
    Limit.objects.create(name="gone", concurrency=1)
    ids = enqueue_many(tasks.sync.bind(name) for name in ("a", "a", "a", "a", "b")).ids
    Job.objects.filter(pk=ids[0]).update(status="running", worker=1, lease=1)
    enqueue_many(noop.using(queue_name="mail").bind() for _ in range(2))
    rows = {line[:28].split("  ")[0]: line for line in run("limits").splitlines()}
    assert {*rows} == {"Limit", "everything", "gone", "queue mail", task, "tenant"}
    assert rows["Limit"].split("  ")[-1] == "Origin"
    for name, words in {
        "everything": "50 - 1 3 wait set by hand",
        "queue mail": "- 100 a minute, burst 10 0 2 wait set by hand",
        "tenant": "3 - 1 4 wait set by hand; the code declares 1",
        task: "2 - 0 0 wait declared in code",
        "gone": "1 - 0 0 wait no longer declared in code; it can be deleted",
    }.items():
        assert rows[name].removeprefix(name).split() == words.split()
    found = {(row["kind"], row["name"]): row for row in json.loads(run("limits", "--json"))}
    assert {*found} == {
        ("all", ""),
        ("limit", "gone"),
        ("limit", "tenant"),
        ("queue", "mail"),
        ("task", task),
    }
    assert found["limit", "tenant"] == {
        "kind": "limit", "name": "tenant", "concurrency": 3, "rate": None, "per": None, "burst": None,
        "on_full": "wait", "running": 1, "waiting": 4, "set_by_hand": True,
        "declared": {"concurrency": 1, "rate": None, "per": None, "burst": None}, "declared_by": "",
    }  # fmt: skip
    mail = found["queue", "mail"]
    assert (mail["rate"], mail["per"], mail["burst"], mail["declared"]) == (100, 60.0, 10, None)


def test_a_narrow_terminal_gets_what_fits() -> None:
    rows = [("mail", "5", "0", "-"), ("slow", "10", "0", "7; 100 a minute")]
    table = Table(("Queue", "Ready", "Running", "Limit"), rows, right=(1, 2))
    wide = [*table.lines(60)]
    assert wide[0] == "Queue  Ready  Running  Limit"
    assert [*table.lines(None)] == wide
    assert [*table.lines(30)] == ["Queue  Ready  Limit", "mail       5  -", "slow      10  7; 100 a minute"]
    assert [*table.lines(26)] == [
        "mail", "  Ready: 5", "slow", "  Ready: 10,", "  Limit: 7; 100 a minute",
    ]  # fmt: skip
