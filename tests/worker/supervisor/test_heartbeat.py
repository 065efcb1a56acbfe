"""Which heartbeats are sent, when recovery runs, and what a supervisor does that has lost its database. Its
clock belongs to the test.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import timedelta
from select import select
from time import monotonic
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import psycopg
import pytest
from django.db.models import F
from django.utils import timezone

from django_pgqueue.maintenance import recovery, rounds
from django_pgqueue.models import Schedule, Worker
from django_pgqueue.schedules.fire import SPREAD
from django_pgqueue.worker.options import WorkerOptions
from django_pgqueue.worker.supervisor import heartbeat as heartbeat_module
from django_pgqueue.worker.supervisor.heartbeat import Heartbeat
from tests.app.worker_tasks import noop
from tests.support.factories import JobFactory, ScheduleFactory, WorkerFactory
from tests.support.jobs import sql
from tests.support.schedules import jobs_of, overdue
from tests.support.sessions import Connect, open_raw
from tests.support.waiting import DEADLINE, until
from tests.support.workers import fresh

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("settled_server")]


class Supervisor:
    """A heartbeat with one process, and a clock that jumps to the next time at which there is work."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(heartbeat_module, "monotonic", lambda: self.now)
        self.begun: list[int] | None = []  # what the process has told of its jobs
        self.child: Any = SimpleNamespace(lives=True, worker=1, jobs=self.jobs(holds_lock=True))
        self.children: list[Any] = [self.child]
        self.heartbeat = Heartbeat(WorkerOptions())
        assert self.heartbeat.start(lambda: None, lambda seconds: None, lambda: False)

    def jobs(self, *, holds_lock: bool) -> Any:
        return SimpleNamespace(holds_lock=holds_lock, begun=lambda: self.begun)

    def serve(self) -> float:
        """Do what is due next, and return the pause before it."""
        pause = self.heartbeat.seconds_left(self.now)
        self.now += pause
        self.heartbeat.serve(self.children)
        return pause

    def turn(self) -> float:
        """Do it with a connection that lasts."""
        pause = self.serve()
        assert self.heartbeat.session
        return pause

    def beats(self) -> bool:
        """Do one turn. Return whether it has sent a heartbeat, which must show what the process does."""
        Worker.objects.filter(pk=1).update(heartbeat_at=timezone.now() - timedelta(minutes=1))
        self.turn()
        row = Worker.objects.get(pk=1)
        is_new = row.heartbeat_at > timezone.now() - timedelta(seconds=30)
        assert not is_new or row.started_jobs == self.begun
        return is_new


@pytest.fixture
def supervisor(monkeypatch: pytest.MonkeyPatch) -> Iterator[Supervisor]:
    WorkerFactory.create(id=1)
    monkeypatch.setattr(rounds, "sweep", lambda session: 0)
    monkeypatch.setattr(rounds.Rounds, "_rotate", lambda self, session: 1e9)
    monkeypatch.setattr(rounds, "SWEEP_EVERY", 1e9)
    monkeypatch.setattr(rounds, "ROTATE_AT_MOST", 1e9)
    monkeypatch.setattr(rounds, "NETS_EVERY", 1e9)
    supervisor = Supervisor(monkeypatch)
    yield supervisor
    supervisor.heartbeat.close()


def dying(seconds: float, **changes: Any) -> Worker:
    """A worker of another supervisor whose last heartbeat was so long ago. Nobody holds its lock."""
    return WorkerFactory.create(id=2, heartbeat_at=timezone.now() - timedelta(seconds=seconds), **changes)


@pytest.mark.parametrize(
    ("lease", "steps"),
    [
        (30, [([], "+-+-+-+")]),
        (30, [([], "+-"), ([5], "+++"), ([], "+-+"), (None, "+++")]),  # None: too many
        (5, [([], "++++")]),
    ],
    ids=["every second is left out while nothing runs", "a started job is written", "a short lease"],
)
def test_which_heartbeats_are_sent(
    supervisor: Supervisor, settings: Any, lease: int, steps: list[tuple[list[int] | None, str]]
) -> None:
    settings.PGQUEUE = {"LEASE": lease}
    for now, sent in steps:
        supervisor.begun = now
        assert "".join("+" if supervisor.beats() else "-" for _ in sent) == sent


@pytest.mark.parametrize("lives", [True, False])
def test_a_process_that_lost_its_lock_or_is_stopped_is_no_idle_one(
    supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch, lives: bool
) -> None:
    supervisor.turn()
    vars(supervisor.child).update(lives=lives, jobs=supervisor.jobs(holds_lock=not lives))
    beat = Mock(wraps=supervisor.heartbeat._beat)
    monkeypatch.setattr(supervisor.heartbeat, "_beat", beat)
    for _ in range(3):
        supervisor.turn()
    assert beat.call_count == 3


def test_nothing_is_recovered_while_all_send_their_heartbeats(
    supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    supervisor.turn()
    monkeypatch.setattr(rounds, "recover_dead", lambda session: pytest.fail("nobody is late"))
    dying(0.9, started_jobs=[5])
    WorkerFactory.create(id=3, heartbeat_at=timezone.now() - timedelta(seconds=1.9), started_jobs=[])
    WorkerFactory.create(id=4, heartbeat_at=timezone.now() - timedelta(seconds=20), holds_lock=False)
    for _ in range(5):
        supervisor.turn()


@pytest.mark.parametrize(("begun", "age"), [([5], 0.8), (None, 0.8), ([], 1.3)])
def test_a_late_worker_is_looked_at_when_it_may_be_dead(
    supervisor: Supervisor, settings: Any, begun: list[int] | None, age: float
) -> None:
    settings.PGQUEUE = {"HEARTBEAT": 0.5}
    supervisor.turn()
    began = monotonic()
    dying(age, started_jobs=begun)
    job = JobFactory.create(running=True, worker=2)
    assert supervisor.turn() == pytest.approx(0.5)  # this heartbeat is left out
    assert supervisor.turn() == pytest.approx(0.5)
    left = supervisor.heartbeat.seconds_left(supervisor.now)
    assert 0.46 - (monotonic() - began) < left < 0.48, "the rest of its time"
    Worker.objects.filter(pk=2).update(heartbeat_at=F("heartbeat_at") - timedelta(seconds=left))
    assert fresh(job).status == "running"
    supervisor.turn()
    assert fresh(job).status == "pending"
    assert not Worker.objects.filter(pk=2).exists()


def test_a_worker_that_is_dead_already_is_recovered_with_the_next_heartbeat_batch_by_batch(
    supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (recovery, rounds):
        monkeypatch.setattr(module, "BATCH", 2)
    supervisor.turn()
    jobs = JobFactory.create_batch(5, running=True, worker=2)
    dying(2.7)
    turns = [supervisor.turn() for _ in range(5)]
    assert {fresh(job).status for job in jobs} == {"pending"}
    assert turns == pytest.approx([1.0, 1.0, heartbeat_module._AFTER, 0.1, 0.1])


def test_a_worker_that_starts_waits_for_a_lock_and_says_so(
    connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    """Deployments start workers while a migration has the lock of a table."""
    migration, heartbeat, waits = connect(), Heartbeat(WorkerOptions()), 0
    migration.execute("LOCK TABLE pgqueue_limit")

    def check() -> None:
        assert heartbeat.session
        heartbeat.session.connection.execute("SET lock_timeout TO '50ms'")

    def sleep(seconds: float) -> None:
        nonlocal waits
        waits += 1
        if waits == 2:
            migration.rollback()

    assert heartbeat.start(check, sleep, lambda: False)
    heartbeat.close()
    (line,) = caplog.messages
    assert line == ("the worker waits for a lock and starts later: canceling statement due to lock timeout")
    assert waits == 2


@pytest.mark.promise("schedule-in-time")
def test_a_supervisor_wakes_for_the_next_run_and_not_only_for_its_heartbeat(
    supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("random.uniform", lambda low, high: high)
    schedule = ScheduleFactory.create()
    due = timezone.now() + timedelta(seconds=0.5)
    Schedule.objects.update(next_run_at=due, since=due - timedelta(days=1))
    supervisor.turn()
    supervisor.turn()  # it has begun to listen, so it looks once more
    left = supervisor.heartbeat.seconds_left(supervisor.now)
    assert (due - timezone.now()).total_seconds() - 0.1 < left < 0.6
    Schedule.objects.update(next_run_at=due - timedelta(seconds=0.6))  # the time has come, as on the clock
    supervisor.turn()
    assert len(jobs_of(schedule)) == 1


# -- schedules


def listening(supervisor: Supervisor) -> None:
    """Let the supervisor notice that there are schedules."""
    ScheduleFactory.create(name="far", cron="0 0 1 1 *")
    for _ in range(5):
        supervisor.turn()
    assert supervisor.heartbeat.files


def serve_on_news(supervisor: Supervisor) -> None:
    """Wait until the supervisor would wake up, and let it look, while its clock stands still."""
    assert select([*supervisor.heartbeat.files], [], [], DEADLINE)[0]
    supervisor.heartbeat.serve([supervisor.child])
    assert supervisor.heartbeat.seconds_left(supervisor.now) <= SPREAD
    supervisor.turn()


def test_a_supervisor_listens_only_if_there_are_schedules(supervisor: Supervisor) -> None:
    for _ in range(3):
        supervisor.turn()
    assert supervisor.heartbeat.files == ()


@pytest.mark.parametrize("change", ["made", "edited", "resumed"])
@pytest.mark.promise("schedule-news")
def test_a_change_of_a_schedule_is_heard_between_two_heartbeats(supervisor: Supervisor, change: str) -> None:
    listening(supervisor)
    if change == "made":
        sql(
            "INSERT INTO pgqueue_schedule (name, task_path, every, since)"
            " VALUES ('changed', 'tests.app.tasks.noop', '1 second', now() - interval '3 seconds')"
        )
    else:
        made = ScheduleFactory.create(name="changed", cron=None, every=timedelta(days=3660))
        if change == "resumed":
            made.pause()
        serve_on_news(supervisor)
        Schedule.objects.filter(pk="changed").update(every=timedelta(seconds=1))
        if change == "resumed":
            made.resume()
    serve_on_news(supervisor)
    row: Any = Schedule.objects.get(pk="changed")
    assert abs((row.next_run_at - timezone.now()).total_seconds()) < 60


def test_news_that_arrive_while_a_statement_runs_are_not_missed(
    supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The session has read them with the answer of the statement, so its file does not become readable."""
    listening(supervisor)

    def run(self: Any, session: Any, now: float) -> None:
        overdue(name="late")
        session.value("SELECT pg_notification_queue_usage()")

    monkeypatch.setattr(rounds.Rounds, "run", run)
    supervisor.heartbeat.serve([supervisor.child])
    assert supervisor.heartbeat.seconds_left(supervisor.now) <= SPREAD


def test_a_lost_session_is_replaced_and_listens_again(supervisor: Supervisor) -> None:
    listening(supervisor)
    (file,) = supervisor.heartbeat.files
    pid = supervisor.heartbeat.session.connection.info.backend_pid  # type: ignore[union-attr]
    sql("SELECT pg_terminate_backend(%s)", pid)
    assert select([file], [], [], DEADLINE)[0]

    def is_lost() -> bool:
        supervisor.heartbeat.serve([supervisor.child])
        return supervisor.heartbeat.session is None

    until(is_lost, what="the end of the session")  # the error may be read before the end
    assert supervisor.heartbeat.files == ()
    for _ in range(5):
        supervisor.turn()
    assert supervisor.heartbeat.files


# -- outages


@pytest.fixture
def alone(supervisor: Supervisor) -> Supervisor:
    """A supervisor without processes, which leaves out no heartbeat."""
    supervisor.children.clear()
    supervisor.turn()
    return supervisor


def cut(supervisor: Supervisor) -> None:
    """End the session, and let the heartbeat notice it."""
    session: Any = supervisor.heartbeat.session
    sql("SELECT pg_terminate_backend(%s, 5000)", session.connection.info.backend_pid)
    assert supervisor.serve() == pytest.approx(1.0)  # the last heartbeat was sent
    assert supervisor.heartbeat.session is None


def test_a_supervisor_tries_again_at_once_and_beats(alone: Supervisor) -> None:
    """If all lose their connections at once, the first one back recovers those that send no heartbeats."""
    for _ in range(3):
        cut(alone)
        assert 0 < alone.turn() <= 0.1


def test_a_supervisor_tries_at_least_once_each_heartbeat(
    alone: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse = Mock(side_effect=psycopg.OperationalError("connection refused\n"))
    monkeypatch.setattr(heartbeat_module, "connect", refuse)
    cut(alone)
    for number in range(1, 13):
        assert alone.serve() <= 1.0
        assert refuse.call_count == number


def test_upkeep_that_fails_again_and_again_is_not_tried_ten_times_a_second(
    alone: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It can connect each time, but only a successful round ends the outage."""
    full = psycopg.errors.DiskFull("no space left on device")
    monkeypatch.setattr(alone.heartbeat._rounds, "run", Mock(side_effect=full))
    assert [alone.serve() for _ in range(7)][-1] >= 0.5


def test_a_supervisor_whose_prepared_statements_are_gone_opens_a_new_session(
    alone: Supervisor, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    for _ in range(2):
        alone.turn()
    session: Any = alone.heartbeat.session
    session.connection.pgconn.exec_(b"DEALLOCATE ALL")
    for _ in range(2):
        alone.serve()
    assert alone.heartbeat.session not in (None, session)
    assert [(each.levelname, each.exc_info) for each in caplog.records] == [("WARNING", None), ("INFO", None)]
    lost, again = caplog.messages
    assert lost.startswith("the connection is lost: a prepared statement cannot be used anymore")
    assert again == "connected again"


# -- what still runs when a user stops the command


def test_the_database_names_what_still_runs(supervisor: Supervisor) -> None:
    """What has ended meanwhile, and is not reported to the supervisor yet, is not waited for."""
    path = noop.module_path
    running = JobFactory.create(running=True, task_path=path)
    over = JobFactory.create(done=True, task_path=path)
    named: Any = supervisor.heartbeat.running([running.pk, over.pk])
    ((name, age),) = named
    assert name == path
    assert 0 <= age < 3600
    assert supervisor.heartbeat.running([]) == []


def test_a_database_that_does_not_answer_holds_nobody_up(supervisor: Supervisor) -> None:
    """A lock on the whole table: the numbers must do, and the connection stays in use."""
    job = JobFactory.create(running=True)
    with open_raw() as other, other.transaction():
        other.execute("LOCK TABLE pgqueue_job_live IN ACCESS EXCLUSIVE MODE")
        assert supervisor.heartbeat.running([job.pk]) is None
    assert supervisor.heartbeat.session
    assert supervisor.heartbeat.running([job.pk])
    sql(
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    assert supervisor.heartbeat.running([job.pk]) is None, "the connection is lost"
    assert supervisor.heartbeat.running([job.pk]) is None, "there is no connection"
