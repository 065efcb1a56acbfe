"""The round: what it makes of due, missed and overlapping runs, and of schedules that are broken."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import IntegrityError, transaction
from django.utils import translation

from django_pgqueue.context import acting_as
from django_pgqueue.maintenance import rounds
from django_pgqueue.models import Job, Schedule, ScheduleRun
from django_pgqueue.postgres.session import connect as connect_session
from django_pgqueue.schedules import fire as fire_module
from django_pgqueue.schedules.fire import NEXT_LOOK, PUNCTUAL, Firing
from django_pgqueue.schedules.policy import known_policy
from tests.app import tasks
from tests.support.factories import ScheduleFactory
from tests.support.jobs import value
from tests.support.schedules import ago, end, fire, jobs_of, minute, outcomes, overdue, runs_of
from tests.support.sessions import Connect, Connection
from tests.support.workers import fresh, run_due

pytestmark = pytest.mark.django_db(transaction=True)

MINUTE = timedelta(minutes=1)
#: The only runs that pass are those that the test makes due.
RARELY: dict[str, Any] = {"cron": None, "every": timedelta(days=3660)}


@pytest.fixture
def one(connect: Connect) -> Connection:
    return connect(autocommit=True)


def run_at(schedule: Schedule, when: datetime) -> None:
    """Let a run be due that nobody has fired, and forget that later ones have passed."""
    Schedule.objects.filter(pk=schedule.pk).update(next_run_at=when, last_run_at=None)


def due_at(schedule: Schedule) -> datetime:
    """Return the next run, which is known."""
    assert schedule.next_run_at is not None
    return schedule.next_run_at


# -- one run


@pytest.mark.promise("context-schedule")
def test_a_scheduled_job_has_no_context_whoever_fires_it(one: Connection) -> None:
    schedule = overdue(**RARELY)
    with translation.override("de"), acting_as(5):
        fire(one)
    assert [job.context for job in jobs_of(schedule)] == [None]


def test_a_due_run_becomes_one_job_and_the_schedule_moves_on(one: Connection) -> None:
    schedule = overdue(args=[1], kwargs={"a": "b"})
    assert fire(one) == 1
    (job,) = jobs_of(schedule)
    assert (job.task_path, job.args, job.kwargs) == ("tests.app.tasks.noop", [1], {"a": "b"})
    assert job.metadata == {"schedule": schedule.name, "run_at": due_at(schedule).isoformat()}
    assert abs(job.run_after - job.enqueued_at) < timedelta(milliseconds=1)
    (run,) = ScheduleRun.objects.all()
    assert (run.run_at, run.job_id, run.outcome) == (schedule.next_run_at, job.pk, "enqueued")
    before, schedule = schedule, Schedule.objects.get()
    assert schedule.last_run_at == before.next_run_at
    assert schedule.next_run_at == due_at(before) + MINUTE
    assert schedule.live_jobs == [job.pk]
    assert fire(one) == 0


@pytest.mark.promise("schedule-runs")
def test_the_job_runs(one: Connection) -> None:
    schedule = overdue()
    fire(one)
    run_due()
    assert [job.status for job in jobs_of(schedule)] == ["done"]


def test_a_run_that_is_not_due_waits(one: Connection) -> None:
    schedule = overdue()
    run_at(schedule, datetime.now(UTC) + timedelta(seconds=30))
    assert fire(one) == 0
    assert not Job.objects.exists()


def test_the_policy_of_the_task_applies(one: Connection) -> None:
    schedule = overdue(task_path="tests.app.tasks.mail", args=[1])
    assert schedule.policy == known_policy(tasks.mail.module_path, [1], {})
    fire(one)
    (job,) = jobs_of(schedule)
    assert (job.queue_name, job.priority, job.max_attempts, job.timeout, job.on_lost) == (
        "mail",
        10,
        3,
        60,
        "fail",
    )
    assert job.metadata["of"] == "mail"


def test_the_queue_and_the_priority_of_the_schedule_win(one: Connection) -> None:
    schedule = overdue(task_path="tests.app.tasks.mail", args=[1], queue_name="reports", priority=0)
    fire(one)
    (job,) = jobs_of(schedule)
    assert (job.queue_name, job.priority) == ("reports", 0)


def test_the_expiry_counts_from_the_job(one: Connection) -> None:
    schedule = overdue(task_path="tests.app.tasks.short_lived")
    fire(one)
    (job,) = jobs_of(schedule)
    assert job.expires_at is not None
    assert job.expires_at - job.run_after == timedelta(hours=2)


def test_a_task_that_nobody_knows_holds_up_no_other(one: Connection) -> None:
    """Its job waits for a worker that knows the task and fills in the policy."""
    unknown, known = overdue(task_path="elsewhere.tasks.run"), overdue()
    assert unknown.policy is None
    assert fire(one) == 2
    (job,) = jobs_of(unknown)
    assert (job.queue_name, job.max_attempts, job.on_lost) == ("default", None, None)
    assert len(jobs_of(known)) == 1


def test_a_policy_of_another_task_does_not_apply(one: Connection) -> None:
    """SQL has changed the task, and this supervisor cannot import it."""
    schedule = overdue(task_path="tests.app.tasks.mail", args=[1])
    Schedule.objects.update(task_path="elsewhere.tasks.run")
    fire(one)
    (job,) = jobs_of(schedule)
    assert (job.queue_name, job.max_attempts) == ("default", None)


def test_jitter_delays_the_job_and_not_the_run(one: Connection) -> None:
    schedule = overdue(jitter=timedelta(seconds=50))
    many = [overdue(jitter=timedelta(seconds=50)) for _ in range(20)]
    fire(one)
    delays = [job.run_after - job.enqueued_at for each in many for job in jobs_of(each)]
    assert len({*delays}) > 10
    assert timedelta(0) <= min(delays) < max(delays) <= timedelta(seconds=50)
    (run,) = runs_of(schedule)  # that of this minute, or of the next one, which may have begun
    assert (run.second, run.microsecond) == (0, 0)


def test_a_new_schedule_gets_its_first_run_from_the_round(one: Connection) -> None:
    """It was inserted with plain SQL, which knows nothing of cron."""
    one.execute(
        "INSERT INTO pgqueue_schedule (name, task_path, cron, timezone)"
        " VALUES ('by hand', 'tests.app.tasks.noop', '0 3 * * *', 'Europe/Paris')"
    )
    assert fire(one) == 1
    schedule = Schedule.objects.get()
    assert schedule.next_run_at is not None
    assert schedule.next_run_at > datetime.now(UTC)
    assert schedule.next_run_at.hour in (1, 2)
    assert not Job.objects.exists()


@pytest.mark.promise("schedule-not-lost")
def test_a_first_run_that_passed_before_any_round_is_fired(one: Connection) -> None:
    schedule = ScheduleFactory.create(every=timedelta(seconds=1), cron=None)
    Schedule.objects.update(since=ago(seconds=1.5))
    fire(one)
    (job,) = jobs_of(schedule)
    assert runs_of(schedule)[0] > ago(seconds=3)
    assert job.status == "pending"


# -- missed runs


HOURS_AGO = 3


@pytest.mark.parametrize(
    ("catch_up", "limit", "count"),
    [("skip", 100, 0), ("latest", 100, 1), ("all", 1000, 1000), ("all", 10, 10)],
)
@pytest.mark.promise("schedule-catch-up")
def test_missed_runs(one: Connection, catch_up: str, limit: int, count: int) -> None:
    """No worker for three hours, at every seventh minute: which runs run?"""
    now = minute()
    first = now.replace(minute=0) - timedelta(hours=HOURS_AGO)
    schedule = overdue(first, cron="*/7 * * * *", catch_up=catch_up, catch_up_limit=limit)
    passed = [first]
    while passed[-1] <= now:
        hour = passed[-1].replace(minute=0)
        following = passed[-1].minute + 7
        passed.append(hour + (timedelta(hours=1) if following > 59 else timedelta(minutes=following)))
    upcoming = passed.pop()
    if catch_up == "skip" and datetime.now(UTC) - passed[-1] <= PUNCTUAL:
        count = 1  # the last one is not late enough
    fire(one)
    fired = [run.run_at for run in ScheduleRun.objects.filter(outcome="enqueued").order_by("run_at")]
    assert fired == passed[len(passed) - min(count, len(passed)) :]
    assert len(jobs_of(schedule)) == len(fired)
    schedule.refresh_from_db()
    assert (schedule.last_run_at, schedule.next_run_at) == (passed[-1], upcoming)
    assert fire(one) == 0


def test_skip_fires_a_run_that_is_a_little_late_and_records_one_that_is_not(one: Connection) -> None:
    for late, outcome in ((50, "enqueued"), (70, "missed")):
        schedule = overdue(ago(seconds=late), catch_up="skip", **RARELY)
        fire(one)
        assert outcomes(schedule) == [outcome]
        assert len(jobs_of(schedule)) == (outcome == "enqueued")


def test_a_year_without_workers_is_one_short_round(one: Connection) -> None:
    schedule = overdue(
        minute() - timedelta(days=365), cron="* * * * *", catch_up="all", catch_up_limit=10_000
    )
    fire(one)
    assert len(jobs_of(schedule)) == 10_000
    assert runs_of(schedule)[-1] >= minute() - MINUTE


# -- overlap


def test_allow_runs_jobs_beside_each_other(one: Connection) -> None:
    schedule = overdue(minute() - 3 * MINUTE, catch_up="all")
    fire(one)
    assert len(jobs_of(schedule)) >= 4
    schedule.refresh_from_db()
    assert schedule.live_jobs == [jobs_of(schedule)[-1].pk]


@pytest.mark.promise("schedule-overlap-skip")
def test_skip_leaves_runs_out_while_the_previous_job_lives(one: Connection) -> None:
    schedule = overdue(ago(minutes=3), overlap="skip", **RARELY)
    fire(one)
    run_at(schedule, ago(seconds=50))
    fire(one)
    assert outcomes(schedule) == ["enqueued", "skipped"]
    end(one, jobs_of(schedule)[0].pk)
    run_at(schedule, ago(seconds=40))
    fire(one)
    assert sorted(outcomes(schedule)) == ["enqueued", "enqueued", "skipped"]
    assert len(jobs_of(schedule)) == 2


def test_skip_runs_one_of_several_missed_runs(one: Connection) -> None:
    schedule = overdue(minute() - 3 * MINUTE, overlap="skip", catch_up="all", catch_up_limit=3)
    fire(one)
    assert outcomes(schedule) == ["enqueued", "skipped", "skipped"]


@pytest.mark.promise("schedule-overlap-queue")
def test_queue_runs_the_runs_one_after_the_other_in_order(one: Connection) -> None:
    schedule = overdue(minute() - 5 * MINUTE, overlap="queue", catch_up="all", catch_up_limit=4)
    fire(one)
    assert outcomes(schedule) == ["enqueued", "waiting", "waiting", "waiting"]
    for number in range(1, 4):
        assert len(jobs_of(schedule)) == number
        assert fire(one) == 0  # the job lives
        end(one, jobs_of(schedule)[-1].pk)
        assert fire(one) == 1
    assert outcomes(schedule) == ["enqueued"] * 4
    assert [job.metadata["run_at"] for job in jobs_of(schedule)] == [
        each.isoformat() for each in runs_of(schedule)
    ]
    schedule.refresh_from_db()
    assert schedule.waiting == 0
    end(one, jobs_of(schedule)[-1].pk)
    assert fire(one) == 0


def test_a_new_run_waits_behind_those_that_wait(one: Connection) -> None:
    schedule = overdue(ago(minutes=2), overlap="queue", **RARELY)
    fire(one)
    run_at(schedule, ago(minutes=1))
    fire(one)
    end(one, jobs_of(schedule)[0].pk)
    run_at(schedule, ago(seconds=1))
    fire(one)
    assert outcomes(schedule) == ["enqueued", "enqueued", "waiting"]


def test_queue_lets_no_more_runs_wait_than_the_limit(one: Connection) -> None:
    schedule = overdue(ago(minutes=2), overlap="queue", catch_up_limit=2, **RARELY)
    fire(one)
    for second in (50, 40, 30, 20):
        run_at(schedule, ago(seconds=second))
        fire(one)
    assert sorted(outcomes(schedule)) == ["enqueued", "skipped", "skipped", "waiting", "waiting"]


def test_a_run_by_hand_counts_as_the_previous_job(one: Connection) -> None:
    schedule = overdue(ago(minutes=2), overlap="skip", **RARELY)
    one.execute("SELECT _pgqueue_enqueue_schedule(%s)", (schedule.name,))
    fire(one)
    assert sorted(outcomes(schedule)) == ["manual", "skipped"]


def test_runs_that_wait_run_although_the_schedule_now_allows_overlap(one: Connection) -> None:
    schedule = overdue(minute() - 5 * MINUTE, overlap="queue", catch_up="all", catch_up_limit=3)
    fire(one)
    Schedule.objects.update(overlap="allow")
    for _ in range(2):
        end(one, jobs_of(schedule)[-1].pk)
        fire(one)
    assert outcomes(schedule) == ["enqueued"] * 3


# -- once


@pytest.mark.promise("schedule-constraint")
def test_a_schedule_that_is_set_back_fires_nothing_twice(one: Connection) -> None:
    """What happens if a clock is set back and the row with it: the runs are still there."""
    schedule = overdue(minute() - 3 * MINUTE, catch_up="all")
    fire(one)
    jobs = len(jobs_of(schedule))
    Schedule.objects.update(next_run_at=minute() - 3 * MINUTE, last_run_at=None)
    broken: dict[str, str] = {}
    fire(one, broken)
    assert not broken
    assert len(jobs_of(schedule)) <= jobs + 1  # a minute may have begun
    assert len(runs_of(schedule)) == len({*runs_of(schedule)})


def test_no_run_is_fired_that_is_not_later_than_the_last(one: Connection) -> None:
    """Not even if maintenance has deleted it: the clock of the server was set back by a month."""
    schedule = overdue(minute() - 3 * MINUTE, catch_up="all")
    last = datetime.now(UTC) + timedelta(days=30)
    Schedule.objects.update(last_run_at=last)
    fire(one)
    assert not Job.objects.exists()
    schedule.refresh_from_db()
    assert schedule.next_run_at is not None
    assert schedule.next_run_at > last


@pytest.mark.promise("schedule-once")
def test_a_run_has_one_row(one: Connection) -> None:
    schedule = overdue()
    fire(one)
    with pytest.raises(IntegrityError, match="pgqueue_run_once"), transaction.atomic():
        ScheduleRun.objects.create(schedule=schedule, run_at=runs_of(schedule)[0], outcome="enqueued")


@pytest.mark.parametrize("state", ["paused_at", "retired_at"])
def test_a_schedule_that_is_paused_or_retired_fires_nothing(one: Connection, state: str) -> None:
    overdue()
    Schedule.objects.update(**{state: datetime.now(UTC)})
    assert fire(one) == 0
    assert not Job.objects.exists()


# -- broken schedules


BROKEN: list[dict[str, object]] = [
    {"cron": "61 * * * *"},
    {"timezone": "Europe/Pari"},
    {"task_path": "no path at all"},
    {"queue_name": "mail, slow"},
    {"args": {"not": "a list"}},
    {"policy": {"task_path": "tests.app.tasks.noop", "args": [], "kwargs": {}, "priority": "high"}},
]


@pytest.mark.parametrize("columns", BROKEN, ids=lambda columns: "".join(columns))
@pytest.mark.promise("schedule-broken")
def test_a_broken_schedule_is_logged_once_and_costs_the_others_nothing(
    one: Connection, caplog: pytest.LogCaptureFixture, columns: dict[str, object]
) -> None:
    run = minute()
    # Not each minute: the next one may begin during the test.
    times = {"cron": f"{run.minute} {run.hour} * * *", "timezone": "UTC"}
    broken, *others = (overdue(run, name=name, **times) for name in "cabdef")
    Schedule.objects.filter(pk=broken.pk).update(**columns)
    Schedule.objects.filter(pk=broken.pk).update(next_run_at=run)
    left_out: dict[str, str] = {}
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            fire(one, left_out)
    assert [len(jobs_of(each)) for each in others] == [1] * 5
    assert not jobs_of(broken)
    (record,) = caplog.records
    assert f"schedule '{broken.name}' does not fire: " in record.getMessage()
    assert "Correct it, in the admin or with SQL" in record.getMessage()
    assert left_out.keys() == {broken.name}
    # Corrected, it fires the run that it owes.
    Schedule.objects.filter(pk=broken.pk).update(
        task_path="tests.app.tasks.noop", queue_name=None, args=[], policy=None, **times
    )
    fire(one, left_out)
    assert len(jobs_of(broken)) == 1


# -- when to look


@pytest.fixture
def firing() -> Firing:
    return Firing()


def seconds_to_next_look(one: Connection) -> float | None:
    row = one.execute(f"SELECT {NEXT_LOOK}", {"broken": []}).fetchone()
    return None if row is None else row[0]


def test_nothing_to_look_at_without_schedules(one: Connection) -> None:
    assert seconds_to_next_look(one) is None
    ScheduleFactory.create()
    Schedule.objects.update(paused_at=datetime.now(UTC))
    assert seconds_to_next_look(one) is None


def test_the_next_look_is_when_the_first_run_is_due(one: Connection) -> None:
    for seconds in (30, 20, 40):
        schedule = ScheduleFactory.create()
        when = datetime.now(UTC) + timedelta(seconds=seconds)
        Schedule.objects.filter(pk=schedule.pk).update(next_run_at=when)
    assert seconds_to_next_look(one) == pytest.approx(20, abs=5)
    ScheduleFactory.create()
    assert (seconds_to_next_look(one) or 0) < 0  # its first run is not computed yet


def test_a_supervisor_looks_when_a_run_is_due_and_again_at_the_next(
    monkeypatch: pytest.MonkeyPatch, firing: Firing
) -> None:
    monkeypatch.setattr("random.uniform", lambda low, high: 0.0)
    schedule = overdue(cron=None, every=timedelta(hours=1))
    session = connect_session("default")
    try:
        firing.look_in(None, 1000.0)
        assert firing.next_round == float("inf")
        firing.look_in(5.0, 1000.0)
        firing.look_in(9.0, 1000.0)
        assert firing.next_round == 1005.0
        firing.run(session, 1004.9)
        assert not jobs_of(schedule)
        firing.run(session, 1005.0)
        assert len(jobs_of(schedule)) == 1
        schedule.refresh_from_db()
        assert schedule.next_run_at is not None
        left = (schedule.next_run_at - datetime.now(UTC)).total_seconds()
        assert firing.next_round == pytest.approx(1005.0 + left, abs=5)
    finally:
        session.close()


def test_a_locked_schedule_is_looked_at_again_soon(
    monkeypatch: pytest.MonkeyPatch, connect: Connect, firing: Firing
) -> None:
    monkeypatch.setattr("random.uniform", lambda low, high: 0.0)
    schedule = overdue()
    editor = connect()
    editor.execute("SELECT FROM pgqueue_schedule FOR UPDATE")
    session = connect_session("default")
    try:
        firing.look_in(0.0, 1000.0)
        firing.run(session, 1000.0)
        assert firing.next_round == pytest.approx(1000.0 + fire_module.STUCK_PAUSE, abs=0.2)
        editor.rollback()
        firing.run(session, firing.next_round)
        assert len(jobs_of(schedule)) == 1
    finally:
        session.close()


def test_a_run_that_becomes_due_during_a_look_is_looked_at_at_once(
    monkeypatch: pytest.MonkeyPatch, firing: Firing
) -> None:
    """Nothing was due yet, but it is when the round asks for the next run. That is no reason for a pause."""
    monkeypatch.setattr("random.uniform", lambda low, high: 0.0)
    schedule = overdue(ago(hours=-1), **RARELY)
    session = connect_session("default")
    ask = session.value

    def value(query: str, parameters: Any = None) -> Any:
        Schedule.objects.filter(last_run_at=None).update(next_run_at=ago(seconds=0.001))
        return ask(query, parameters)

    monkeypatch.setattr(session, "value", value)
    try:
        firing.look_in(0.0, 1000.0)
        firing.run(session, 1000.0)
        assert not jobs_of(schedule)
        assert firing.next_round == pytest.approx(1000.0, abs=fire_module.STUCK_PAUSE - 0.01)
        firing.run(session, firing.next_round)
        assert len(jobs_of(schedule)) == 1
    finally:
        session.close()


# -- maintenance


def test_old_runs_are_deleted_except_the_last_and_those_that_wait(one: Connection) -> None:
    schedule = ScheduleFactory.create()
    last = ago(days=20)
    for age, outcome in ((30, "enqueued"), (25, "waiting"), (9, "skipped"), (7, "enqueued")):
        ScheduleRun.objects.create(schedule=schedule, run_at=ago(days=age), outcome=outcome)
    ScheduleRun.objects.create(schedule=schedule, run_at=last, outcome="enqueued")
    Schedule.objects.update(last_run_at=last)
    session = connect_session("default")
    try:
        rounds.sweep(session)
    finally:
        session.close()
    kept = [round((datetime.now(UTC) - run).total_seconds() / 86400) for run in runs_of(schedule)]
    assert kept == [25, 20, 7]
    assert value(one, "SELECT count(*) FROM pgqueue_schedule_run") == 3


def test_a_job_without_a_policy_gets_it_from_the_worker(
    one: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The supervisor that fires belongs to another project."""
    monkeypatch.setattr(fire_module, "known_policy", lambda *call: None)
    schedule = overdue(task_path="tests.app.tasks.mail", args=[1])
    Schedule.objects.update(policy=None, queue_name="mail")
    fire(one)
    (job,) = jobs_of(schedule)
    assert job.on_lost is None
    run_due()
    job = fresh(job)
    assert (job.status, job.max_attempts, job.timeout, job.on_lost) == ("done", 3, 60, "fail")
