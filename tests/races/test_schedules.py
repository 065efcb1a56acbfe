"""Rounds that fire schedules, against each other and against people who change a schedule at that moment.

A round has two steps, a look and a statement that fires, so that an interleaving can be forced between them.
The statement is one transaction; the tests keep it open to see who waits for whom.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from typing import Any, TypeVar
from unittest.mock import patch

import pytest
from django.db import connections

from django_pgqueue.maintenance.schedules import synchronize
from django_pgqueue.models import Job, Schedule, ScheduleRun
from django_pgqueue.schedules.declare import Declaration, _declared
from django_pgqueue.schedules.fire import MOST_STUCK, due_plans, fire_due, fire_plans
from tests.app import unique_tasks  # noqa: F401 - a job does not import it
from tests.app.tasks import noop
from tests.support.jobs import add, value
from tests.support.schedules import ago, fire, jobs_of, minute, outcomes, overdue, rows_of, runs_of
from tests.support.sessions import Background, Connection, behind
from tests.support.waiting import DEADLINE, until

pytestmark = pytest.mark.django_db(transaction=True)

INDEX = "tests.app.unique_tasks.index"
RARELY: dict[str, Any] = {"cron": None, "every": timedelta(days=3660)}

T = TypeVar("T")


def in_background(call: Callable[[], T]) -> Background[T]:
    """Call a function that uses Django's connection, in another thread with a connection of its own."""
    opened: Future[Connection] = Future()

    def run() -> T:
        connections["default"].ensure_connection()
        opened.set_result(connections["default"].connection)
        with closing(connections["default"]):
            return call()

    answer = ThreadPoolExecutor(1).submit(run)
    return Background(opened.result(DEADLINE), lambda: answer.result(DEADLINE))


# -- two rounds


@pytest.mark.promise("schedule-once")
def test_two_rounds_fire_a_run_once_and_none_waits(one: Connection, other: Connection) -> None:
    schedules = [overdue() for _ in range(3)]
    asked: list[str] = []

    def rows(query: str, parameters: Any) -> Any:
        asked.append(query)
        return rows_of(other)(query, parameters)

    assert fire(one) == 3
    assert fire_due(rows, {}) == 0  # the rows are locked
    assert len(asked) == 2, "it has looked, and has not tried again: it met no lock"
    schedules.append(overdue())
    assert fire(other) == 1, "the locked ones do not hold it up"
    one.commit()
    assert fire(other) == 0  # nothing is due any more
    assert [len(jobs_of(each)) for each in schedules] == [1, 1, 1, 1]


def test_a_round_that_has_looked_earlier_fires_nothing_again(one: Connection, other: Connection) -> None:
    """Both have read the same runs. The version of the row tells the second one that it is late."""
    schedule = overdue(ago(minutes=1), **RARELY)
    plans = due_plans(rows_of(other), {})
    fire(one)
    one.commit()
    version = value(other, "SELECT xmin::text FROM pgqueue_schedule")
    assert fire_plans(rows_of(other), plans, {}) == 0
    assert outcomes(schedule) == ["enqueued"]
    assert value(other, "SELECT xmin::text FROM pgqueue_schedule") == version


@pytest.mark.promise("schedule-transaction")
def test_a_supervisor_that_dies_inside_its_round_leaves_nothing(one: Connection, other: Connection) -> None:
    schedules = [overdue() for _ in range(3)]
    assert fire(one) == 3
    one.rollback()  # as the server does
    assert not Job.objects.exists()
    assert not ScheduleRun.objects.exists()
    assert fire(other) == 3
    assert [len(jobs_of(each)) for each in schedules] == [1, 1, 1]


def test_a_waiting_run_is_woken_once(one: Connection, other: Connection) -> None:
    schedule = overdue(ago(minutes=2), overlap="queue", **RARELY)
    fire(other)
    Schedule.objects.update(next_run_at=ago(minutes=1))
    fire(other)
    assert outcomes(schedule) == ["enqueued", "waiting"]
    other.execute("SELECT pgqueue_cancel(%s::bigint[])", ([jobs_of(schedule)[0].pk],))
    plans = due_plans(rows_of(other), {})
    assert fire(one) == 1
    one.commit()
    assert fire_plans(rows_of(other), plans, {}) == 0
    assert fire(other) == 0
    assert len(jobs_of(schedule)) == 2


# -- edits


@pytest.mark.parametrize(
    ("change", "fires"),
    [("every = '300 days'", 1), ("args = '[9]'", 1), ("paused_at = now()", 0), ("retired_at = now()", 0)],
)
def test_a_change_after_the_look_counts(one: Connection, other: Connection, change: str, fires: int) -> None:
    """The runs and the keys were computed from what is no longer true. A run that was due is not lost."""
    schedule = unique(7, every=timedelta(days=30))
    one.execute("UPDATE pgqueue_schedule SET args = '[8]'")  # so the round computes the keys
    one.commit()
    plans = due_plans(rows_of(other), {})
    assert "index/8" in (plans[0].policy or "")
    assert plans[0].next_run_at < ago(days=-31)
    one.execute(f"UPDATE pgqueue_schedule SET {change}")
    assert fire_plans(rows_of(other), plans, {}) == 0  # the row is locked
    one.commit()
    assert fire_plans(rows_of(other), plans, {}) == 0  # it is another row now
    assert not Job.objects.exists()
    assert fire(other) == fires
    schedule.refresh_from_db()
    for job in jobs_of(schedule):
        assert (job.args, job.unique_key) == (schedule.args, f"{INDEX}/{schedule.args[0]}")
        assert runs_of(schedule) == [schedule.last_run_at]
        days = schedule.next_run_at.timestamp() / 86400  # type: ignore[union-attr]
        assert days % (schedule.every or timedelta(days=1)).days == 0


@pytest.mark.promise("schedule-not-lost")
def test_an_edit_after_the_look_loses_no_overdue_run(one: Connection, other: Connection) -> None:
    """The round has planned four runs of the old timing. The edit commits before it fires."""
    schedule = overdue(minute() - timedelta(minutes=3), catch_up="all")
    plans = due_plans(rows_of(other), {})
    assert len(plans[0].runs) >= 4
    one.execute("UPDATE pgqueue_schedule SET cron = NULL, every = '3660 days'")
    one.commit()
    assert fire_plans(rows_of(other), plans, {}) == 0
    assert fire(other) == 1
    assert runs_of(schedule)[:4] == plans[0].runs[:4]
    assert len(jobs_of(schedule)) == len(runs_of(schedule))
    assert fire(other) == 0


def test_an_edit_waits_for_the_round_and_owes_nothing_that_it_has_fired(
    one: Connection, other: Connection
) -> None:
    last = minute() - timedelta(minutes=30)  # the next run is not during the test
    schedule = overdue(last - timedelta(hours=3), catch_up="all", cron=f"{last.minute} * * * *")
    fire(one)
    behind(one, other, Connection.execute, "UPDATE pgqueue_schedule SET cron = NULL, every = '3660 days'")
    schedule.refresh_from_db()
    assert (schedule.owed, schedule.next_run_at) == (None, None)
    fired = runs_of(schedule)
    fire(other)
    assert runs_of(schedule) == fired
    assert len(jobs_of(schedule)) == len(fired) >= 4


def test_a_pause_waits_for_the_round_and_then_holds(one: Connection, other: Connection) -> None:
    schedule = overdue(ago(minutes=1), **RARELY)
    fire(one)
    pausing = in_background(lambda: schedule.pause(reason="audit", author="kim")).blocked()
    one.commit()
    assert pausing.result() is True
    schedule.refresh_from_db()
    assert (schedule.pause_author, schedule.pause_reason) == ("kim", "audit")
    assert len(jobs_of(schedule)) == 1
    Schedule.objects.update(next_run_at=ago(seconds=1))
    assert fire(other) == 0


def test_a_save_writes_back_nothing_that_a_round_has_moved(one: Connection) -> None:
    """An admin opens the page, the run passes, the admin saves."""
    schedule = overdue(ago(minutes=1), **RARELY)
    stale = Schedule.objects.get()
    fire(one)
    one.commit()
    stale.jitter = timedelta(seconds=5)
    stale.save()
    saved = Schedule.objects.get()
    assert saved.jitter == timedelta(seconds=5)
    assert saved.last_run_at == schedule.next_run_at
    assert saved.next_run_at is not None
    assert saved.next_run_at > ago(seconds=0)
    assert saved.live_jobs == [jobs_of(schedule)[0].pk]


# -- by hand


def test_a_run_by_hand_waits_for_the_round_and_both_jobs_are_known(
    one: Connection, other: Connection
) -> None:
    """The overlap of the next run depends on both."""
    schedule = overdue(ago(minutes=1), overlap="skip", **RARELY)
    fire(one)
    running = in_background(lambda: schedule.enqueue().pk).blocked()
    one.commit()
    by_hand = running.result()
    schedule.refresh_from_db()
    assert {*schedule.live_jobs} == {job.pk for job in jobs_of(schedule)}
    assert len(schedule.live_jobs) == 2
    assert by_hand in schedule.live_jobs
    assert sorted(outcomes(schedule)) == ["enqueued", "manual"]


def test_the_round_leaves_a_schedule_that_runs_by_hand_to_the_next(
    one: Connection, other: Connection
) -> None:
    schedule = overdue(ago(minutes=1), overlap="skip", **RARELY)
    one.execute("SELECT _pgqueue_enqueue_schedule(%s)", (schedule.name,))
    assert fire(other) == 0
    one.commit()
    assert fire(other) == 1
    assert sorted(outcomes(schedule)) == ["manual", "skipped"]


# -- unique keys


def enqueue_unique(connection: Connection, document: int) -> int:
    """Enqueue ``unique_tasks.index`` as a view of the project does. Return the id."""
    options = {"unique_key": f"{INDEX}/{document}", "unique_scope": "waiting"}
    return add(connection, task_path=INDEX, args=f"[{document}]", options=json.dumps(options))[0]


def unique(document: int, **columns: Any) -> Schedule:
    return overdue(ago(minutes=1), task_path=INDEX, args=[document], **{**RARELY, **columns})


@pytest.mark.parametrize("commits", [True, False])
def test_a_run_whose_key_an_open_transaction_holds_is_fired_later(
    one: Connection, other: Connection, commits: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """The round does not wait for the transaction, and fires the others."""
    other.execute("SET lock_timeout = 0; SET statement_timeout = '10s'")  # it has a timeout of its own
    twin = enqueue_unique(one, 7)
    held, free, plain = unique(7), unique(8), overdue(ago(minutes=1), **RARELY)
    broken: dict[str, str] = {}
    with caplog.at_level(logging.WARNING):
        assert fire(other, broken) == 2
        assert fire(other, broken) == 0
    assert (broken, caplog.records) == ({}, [])
    assert (len(jobs_of(held)), len(jobs_of(free)), len(jobs_of(plain))) == (0, 1, 1)
    assert not runs_of(held)
    getattr(one, "commit" if commits else "rollback")()
    assert fire(other, broken) == 1
    assert outcomes(held) == ["existing" if commits else "enqueued"]
    (job,) = ScheduleRun.objects.filter(schedule=held).values_list("job_id", flat=True)
    assert (job == twin) is commits


def test_many_held_keys_delay_a_round_only_for_a_moment(one: Connection, other: Connection) -> None:
    """Each costs the wait of one statement, so a round gives up after some of them. All have their turn."""
    for document in range(2 * MOST_STUCK):
        enqueue_unique(one, document)
        unique(document)
    free = [unique(document) for document in range(100, 103)]
    tried = 0

    def rows(query: str, parameters: Any) -> list[Any]:
        nonlocal tried
        tried += "_pgqueue_fire" in query
        return rows_of(other)(query, parameters)

    fire_due(rows, {})
    assert tried <= 1 + MOST_STUCK + len(free)
    until(lambda: fire(other) == 0 and all(map(jobs_of, free)), what="the schedules whose keys are free")
    one.rollback()
    until(lambda: fire(other) == 0, what="the rest")
    assert Job.objects.count() == 2 * MOST_STUCK + len(free)


# -- workers that start


@pytest.fixture
def declared() -> Iterator[None]:
    common: dict[str, Any] = {
        "task_path": noop.module_path,
        "source": "code",
        "declared_by": "tests.app.tasks",
    }
    with patch.dict(_declared, clear=True):
        for name in ("declared-0", "declared-1", "declared-2"):
            _declared[name] = (noop, Declaration(name=name, cron="0 3 * * *", **common))
        yield


@pytest.mark.usefixtures("declared")
def test_two_workers_that_start_synchronize_one_after_the_other(one: Connection) -> None:
    """The first is about to write; the second has already seen that the rows are missing."""
    one.execute("SELECT name FROM pgqueue_duty WHERE name = 'schedules' FOR UPDATE")
    second = in_background(lambda: synchronize("default")).blocked()
    one.execute(
        "INSERT INTO pgqueue_schedule (name, task_path, cron, source, declared_by, pause_author)"
        " VALUES ('declared-0', 'tests.app.tasks.noop', '0 3 * * *', 'code', 'tests.app.tasks', 'the first')"
    )
    one.commit()
    second.result()
    assert Schedule.objects.count() == 3
    assert Schedule.objects.get(pk="declared-0").pause_author == "the first"


@pytest.mark.usefixtures("declared")
def test_a_worker_that_starts_does_not_lose_an_edit(one: Connection) -> None:
    """An admin overrides a field between the look and the lock, and the code has changed it, too."""
    synchronize("default")
    for name, (task, declaration) in list(_declared.items()):
        _declared[name] = (task, replace(declaration, cron="0 5 * * *"))
    one.execute(
        "UPDATE pgqueue_schedule SET cron = '0 4 * * *', overridden = '[\"cron\", \"every\"]'"
        " WHERE name = 'declared-0'"
    )
    worker = in_background(lambda: synchronize("default")).blocked()
    one.commit()
    worker.result()
    assert Schedule.objects.get(pk="declared-0").cron == "0 4 * * *"
    assert Schedule.objects.get(pk="declared-1").cron == "0 5 * * *"


@pytest.mark.usefixtures("declared")
def test_a_row_that_somebody_keeps_locked_does_not_stop_the_worker(
    one: Connection, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    synchronize("default")
    Schedule.objects.update(declared_by="")
    one.execute("SELECT FROM pgqueue_schedule FOR UPDATE")
    monkeypatch.setattr("django_pgqueue.maintenance.schedules.PATIENCE", "10ms")
    with caplog.at_level(logging.ERROR):
        synchronize("default")
    assert "the schedules were not synchronized" in caplog.text
    one.rollback()
