"""What the page "Upgrading and uninstalling" says happens, happens."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connections
from django.utils import timezone

from django_pgqueue import enqueue
from django_pgqueue.models import Job, JobStat, Schedule, ScheduleRun, Worker

from ..app.tasks import noop
from ..support.databases import alias, fresh_database, migrate
from ..support.factories import JobFactory, JobStatFactory, WorkerFactory
from .shop import example, in_shop, statements

LEFT = """
    SELECT relname FROM pg_class WHERE relname LIKE 'pgqueue%' AND relnamespace = 'public'::regnamespace
    UNION ALL SELECT proname FROM pg_proc WHERE proname ~ '^_?pgqueue'
    UNION ALL SELECT tgname FROM pg_trigger WHERE tgname LIKE 'pgqueue%'
"""

SEQUENCES = """
    SELECT oid::regclass::text FROM pg_class
    WHERE relkind = 'S' AND relname LIKE 'pgqueue%' AND relnamespace = 'public'::regnamespace
"""


def ask(name: str, using: str = "default") -> list[Any]:
    with connections[using].cursor() as cursor:
        cursor.execute(statements(f"upgrade/{name}"))
        return cursor.fetchall() if cursor.description else []


def left(using: str) -> set[str]:
    """The tables, indexes, sequences, functions and triggers of the queue."""
    with connections[using].cursor() as cursor:
        cursor.execute(LEFT)
        return {name for (name,) in cursor.fetchall()}


@pytest.mark.django_db
def test_unfinished_jobs() -> None:
    JobFactory.create(queue_name="mail", done=True)
    JobFactory.create_batch(2, queue_name="mail")
    later = JobFactory.create(queue_name="mail", retrying=True)
    assert [row[:3] for row in ask("unfinished")] == [("mail", "pending", 2), ("mail", "retry", 1)]
    assert ask("unfinished")[1][3] == later.run_after


@in_shop
def test_the_sequences_are_moved_beyond_all_ids() -> None:
    """As on a subscriber: the rows have been replicated, and the sequences have not."""
    before = enqueue(example("tasks").send_receipt, 1)
    schedule = Schedule.objects.create(name="nightly", task_path="shop.tasks.send_receipt", cron="0 3 * * *")
    run = ScheduleRun.objects.create(schedule=schedule, run_at=timezone.now(), outcome="missed")
    with connections["default"].cursor() as cursor:
        cursor.execute(SEQUENCES)
        names = [name for (name,) in cursor.fetchall()]
        for name in names:
            cursor.execute("SELECT setval(%s, 1, false)", (name,))
        ask("sequence")
        for name in names:
            cursor.execute("SELECT nextval(%s)", (name,))
            assert cursor.fetchone()[0] > 999_999, f"{name} is not moved"
    assert enqueue(example("tasks").send_receipt, 1).pk > before.pk
    later = ScheduleRun.objects.create(schedule=schedule, run_at=timezone.now(), outcome="missed")
    assert later.pk > run.pk


@in_shop
def test_a_copy_for_development_is_emptied() -> None:
    JobFactory.create(done=True)
    JobFactory.create(failed=True)
    JobFactory.create()
    WorkerFactory.create()
    JobStatFactory.create()
    ask("empty_copy")
    assert [model.objects.count() for model in (Job, Worker, JobStat)] == [0, 0, 0]
    assert enqueue(example("tasks").send_receipt, 1).status == "pending"


@pytest.mark.django_db(transaction=True, databases="__all__")
@pytest.mark.promise("uninstall")
def test_migrating_to_zero_drops_everything_without_asking() -> None:
    with fresh_database() as name, alias("uninstalled", NAME=name) as using:
        migrate(using)
        enqueue(noop.using(database=using))
        assert left(using) >= {"pgqueue_job", "pgqueue_enqueue", "pgqueue_guard"}
        migrate(using, "zero")
        assert left(using) == set()
