"""Jobs of a task that is unknown here: told at once, then once a minute with their count."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from django.db import connection

from django_pgqueue.worker.producer import reporter
from django_pgqueue.worker.producer.reporter import UnknownTasks
from tests.support.rows import claimed
from tests.support.workers import run_due


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(reporter, "monotonic", clock)
    return clock


def lines(caplog: pytest.LogCaptureFixture) -> list[Any]:
    return [record for record in caplog.records if record.name == "django_pgqueue.job"]


def counts(caplog: pytest.LogCaptureFixture) -> list[tuple[str, int]]:
    return [(record.task_path, record.count) for record in lines(caplog)]


def test_the_first_is_told_at_once_and_then_one_line_a_minute(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    unknown = UnknownTasks()
    for _ in range(5):
        unknown.met(claimed(task_path="a.b"), "no task")
        unknown.tell(clock.now)
    unknown.met(claimed(task_path="c.d"), "no task")
    assert counts(caplog) == [("a.b", 1), ("c.d", 1)]
    clock.now += 59.9
    unknown.met(claimed(task_path="a.b"), "no task")
    unknown.tell(clock.now)
    assert len(counts(caplog)) == 2
    clock.now += 0.1
    unknown.tell(clock.now)
    assert counts(caplog)[2:] == [("a.b", 5)]
    assert {record.levelname for record in lines(caplog)} == {"WARNING"}


def test_a_path_of_which_nothing_more_comes_is_forgotten(clock: Clock) -> None:
    unknown = UnknownTasks()
    unknown.met(claimed(), "no task")
    clock.now += 60
    unknown.tell(clock.now)
    assert unknown._told == {}


def test_at_the_end_the_rest_is_told(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    unknown = UnknownTasks()
    for _ in range(3):
        unknown.met(claimed(), "no task")
    unknown.tell(clock.now, all_of_them=True)
    assert [count for _, count in counts(caplog)] == [1, 2]


@pytest.mark.django_db(transaction=True)
def test_a_worker_tells_of_them(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "django_pgqueue.job")
    with connection.cursor() as cursor:
        cursor.execute("SELECT pgqueue_enqueue('tests.app.worker_tasks.nothing') FROM generate_series(1, 20)")
    run_due()
    first, rest = lines(caplog)
    assert first.getMessage().startswith(
        "the task tests.app.worker_tasks.nothing is unknown here: requeued 1 job, the last one in queue "
    )
    assert "no task 'tests.app.worker_tasks.nothing'" in first.getMessage()
    assert "requeued 19 jobs" in rest.getMessage()
    assert [record.exc_info for record in (first, rest)] == [None, None]


@pytest.mark.django_db(transaction=True)
def test_each_job_has_its_line_among_the_details(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "django_pgqueue.job")
    with connection.cursor() as cursor:
        cursor.execute("SELECT pgqueue_enqueue('tests.app.worker_tasks.nothing') FROM generate_series(1, 3)")
    run_due()
    details = [record for record in lines(caplog) if record.levelno == logging.DEBUG]
    assert len(details) == 3
    assert "nothing is unknown here; it runs again in 30 s, at " in details[0].getMessage()


@pytest.mark.django_db(transaction=True)
def test_a_path_from_sql_does_not_speak_to_the_terminal(caplog: pytest.LogCaptureFixture) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pgqueue_enqueue(%s)", ["tests.app.no\x1b[2J\u202esuch.task"])
    run_due()
    (line,) = [record.getMessage() for record in lines(caplog)]
    assert "tests.app.no\\x1b[2J\\u202esuch.task is unknown here" in line
    assert line.isprintable()
