"""Statistics are counted in memory by minute, queue and task, and added to the table."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Any

import pytest

from django_pgqueue import enqueue
from django_pgqueue.models import JobStat
from django_pgqueue.models.statistics import HISTOGRAM_BOUNDS
from django_pgqueue.postgres.session import connect
from django_pgqueue.worker.producer.reporter import FLUSH_EVERY, Accounts
from tests.app import worker_tasks as tasks
from tests.support.rows import claimed
from tests.support.workers import run_due


class Server:
    """Counts what would be written."""

    def __init__(self) -> None:
        self.written = 0

    @contextmanager
    def aside(self, what: str) -> Iterator[None]:
        yield

    def run(self, statement: tuple[str, Any]) -> None:
        self.written += 1


def test_it_is_due_when_there_is_something_and_the_time_has_come() -> None:
    accounts, server = Accounts(), Server()
    session: Any = server

    def is_written(now: float) -> bool:
        before = server.written
        accounts.write(session, now)
        return server.written > before

    assert not is_written(FLUSH_EVERY)
    accounts.count(claimed(), "done", 0.1, 0.1)
    assert not is_written(FLUSH_EVERY - 1)
    assert is_written(FLUSH_EVERY)
    assert not is_written(3 * FLUSH_EVERY)


@pytest.mark.parametrize("kind", ["snooze", "release", "unknown", "lost"])
def test_what_has_not_ended_an_attempt_is_not_counted(kind: str) -> None:
    accounts, server = Accounts(), Server()
    session: Any = server
    accounts.count(claimed(), kind, 0.1, 0.1)
    accounts.write(session, monotonic(), is_last=True)
    assert not server.written


@pytest.mark.django_db(transaction=True)
def test_minutes_queues_and_tasks_apart_and_added_up() -> None:
    accounts = Accounts()
    session = connect("default")

    accounts.count(claimed(last_attempted_at="2026-11-21 01:38:16.5+00"), "done", 0.5, 0.25)
    accounts.count(claimed(last_attempted_at="2026-11-21 01:38:59+00"), "done", 0.5, 0.25)
    accounts.count(claimed(last_attempted_at="2026-11-21 01:39:00+00"), "failed", 1e9, 0.0)
    accounts.count(claimed(queue_name="mail"), "retry", 0.0, 0.0)
    accounts.count(claimed(task_path='odd"path\\'), "cancelled", 0.0, 0.0)
    accounts.write(session, monotonic(), is_last=True)
    accounts.count(claimed(last_attempted_at="2026-11-21 01:38:00+00"), "done", 1.0, 1.0)
    accounts.write(session, monotonic(), is_last=True)
    session.close()

    def row(**which: Any) -> JobStat:
        return JobStat.objects.get(**which)

    first = row(minute="2026-11-21T01:38:00Z", queue_name="default", task_path="tests.app.tasks.noop")
    assert (first.done, first.failed, first.retried, first.cancelled) == (3, 0, 0, 0)
    assert (first.wait_seconds, first.run_seconds) == (2.0, 1.5)
    assert sum(first.wait_histogram) == sum(first.run_histogram) == 3
    assert len(first.wait_histogram) == len(HISTOGRAM_BOUNDS) + 1
    second = row(minute="2026-11-21T01:39:00Z")
    assert (second.failed, second.wait_histogram[-1], second.run_histogram[0]) == (1, 1, 1)
    assert row(queue_name="mail").retried == 1
    assert row(task_path='odd"path\\').cancelled == 1


@pytest.mark.django_db(transaction=True)
def test_two_workers_add_up() -> None:
    for _ in range(2):
        enqueue(tasks.noop)
        run_due()
    assert sum(stat.done for stat in JobStat.objects.all()) == 2
