"""The round: what it makes of due, missed and overlapping runs, of broken schedules, and of edits."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import IntegrityError, transaction
from django.test import Client
from django.utils import translation

from django_pgqueue.context import acting_as
from django_pgqueue.maintenance import rounds
from django_pgqueue.models import Job, Schedule, ScheduleRun
from django_pgqueue.postgres.session import Session
from django_pgqueue.schedules import fire as fire_module
from django_pgqueue.schedules.fire import PUNCTUAL, Due, Plan, due_plans, fire_plans, plan
from django_pgqueue.schedules.policy import known_policy
from tests.admin.helpers import url
from tests.app import tasks
from tests.support.factories import ScheduleFactory
from tests.support.jobs import value
from tests.support.schedules import ago, end, fire, jobs_of, minute, outcomes, overdue, rows_of, runs_of
from tests.support.sessions import Connection
from tests.support.workers import fresh, run_due

pytestmark = pytest.mark.django_db

MINUTE = timedelta(minutes=1)
#: The only runs that pass are those that the test makes due.
RARELY: dict[str, Any] = {"cron": None, "every": timedelta(days=3660)}


def run_at(schedule: Schedule, when: datetime) -> None:
    """Let a run be due that nobody has fired, and forget that later ones have passed."""
    Schedule.objects.filter(pk=schedule.pk).update(next_run_at=when, last_run_at=None)


# -- one run


@pytest.mark.django_db(transaction=True)
@pytest.mark.promise("context-schedule", "schedule-runs")
def test_a_due_run_becomes_one_job_and_the_schedule_moves_on(one: Connection) -> None:
    due = minute()
    schedule = overdue(due, task_path="tests.app.tasks.short_lived")
    later = overdue(ago(seconds=-30), **RARELY)
    with translation.override("de"), acting_as(5):
        assert fire(one) == 1
    assert not jobs_of(later), "it is not due"
    later.delete()
    (job,) = jobs_of(schedule)
    assert (job.task_path, job.args, job.kwargs) == ("tests.app.tasks.short_lived", [], {})
    assert job.expires_at == job.run_after + timedelta(hours=2)
    assert job.context is None, "whoever fires it"
    assert job.metadata == {"schedule": schedule.name, "run_at": due.isoformat()}
    assert abs(job.run_after - job.enqueued_at) < timedelta(milliseconds=1)
    (run,) = ScheduleRun.objects.all()
    assert (run.run_at, run.job_id, run.outcome) == (due, job.pk, "enqueued")
    schedule.refresh_from_db()
    assert (schedule.last_run_at, schedule.next_run_at) == (due, due + MINUTE)
    assert schedule.live_jobs == [job.pk]
    assert fire(one) == 0
    run_due()
    assert fresh(job).status == "done"


MAIL: dict[str, Any] = {"task_path": "tests.app.tasks.mail", "args": [1]}


@pytest.mark.parametrize(
    ("columns", "moved", "expected"),
    [
        (MAIL, None, ("mail", 10, 3, 60, "fail")),
        ({**MAIL, "queue_name": "reports", "priority": 0}, None, ("reports", 0, 3, 60, "fail")),
        # SQL has changed the task, and this supervisor cannot import it.
        (MAIL, "elsewhere.tasks.run", ("default", 0, None, None, None)),
    ],
    ids=["the policy of the task", "the schedule wins", "a policy of another task does not apply"],
)
def test_the_policy_of_a_job(one: Connection, columns: Any, moved: str | None, expected: Any) -> None:
    schedule = overdue(**columns)
    assert schedule.policy == known_policy(tasks.mail.module_path, [1], {})
    if moved:
        Schedule.objects.update(task_path=moved)
    fire(one)
    (job,) = jobs_of(schedule)
    assert (job.queue_name, job.priority, job.max_attempts, job.timeout, job.on_lost) == expected
    assert job.metadata.get("of") == (None if moved else "mail")


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


@pytest.mark.parametrize(
    ("catch_up", "limit", "count"),
    [("skip", 100, 0), ("latest", 100, 1), ("all", 1000, 1000), ("all", 10, 10)],
)
@pytest.mark.promise("schedule-catch-up")
def test_missed_runs(one: Connection, catch_up: str, limit: int, count: int) -> None:
    """No worker for three hours, at every seventh minute: which runs run?"""
    now = minute()
    first = now.replace(minute=0) - timedelta(hours=3)
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


# -- overlap


#: What is done one after the other, and the outcomes of the runs, in order of their times.
STORIES = """
allow   | due due                                | enqueued enqueued
skip    | due due end due                        | enqueued skipped enqueued
skip    | hand due                               | skipped manual
queue   | due due end due                        | enqueued enqueued waiting
queue 2 | due due due due due                    | enqueued waiting waiting skipped skipped
queue   | due due due allow end fire end fire    | enqueued enqueued enqueued
"""


@pytest.mark.parametrize("story", STORIES.strip().splitlines())
@pytest.mark.promise("schedule-overlap-skip")
def test_a_run_while_the_previous_job_lives(one: Connection, story: str) -> None:
    overlap, steps, expected = (cell.split() for cell in story.split("|"))
    limit = int(overlap[1]) if overlap[1:] else 100
    schedule = overdue(ago(hours=1), overlap=overlap[0], catch_up_limit=limit, **RARELY)
    for second, step in enumerate(steps):
        if step == "due":
            run_at(schedule, ago(seconds=50 - second))
        elif step == "hand":
            one.execute("SELECT _pgqueue_enqueue_schedule(%s)", (schedule.name,))
            continue
        elif step == "allow":
            Schedule.objects.update(overlap="allow")
            continue
        elif step == "end":
            end(one, jobs_of(schedule)[-1].pk)
            continue
        fire(one)
    assert outcomes(schedule) == expected
    assert len(jobs_of(schedule)) == expected.count("enqueued") + expected.count("manual")
    for run in ScheduleRun.objects.filter(outcome__in=["skipped", "waiting"]):
        assert run.job_id in {job.pk for job in jobs_of(schedule)}, "the job that is in the way"
    schedule.refresh_from_db()
    if overlap[0] == "allow":
        assert schedule.live_jobs == [jobs_of(schedule)[-1].pk], "nobody asks for the others"


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
    """Not even if maintenance has deleted it: the clock of the server was set back by a month. Nor does the
    database believe a worker that has planned one.
    """
    schedule = overdue(minute() - 3 * MINUTE, catch_up="all")
    rows = rows_of(one)
    (planned,) = due_plans(rows, {})
    assert planned.runs
    last = datetime.now(UTC) + timedelta(days=30)
    Schedule.objects.update(last_run_at=last)
    fire(one)
    assert not Job.objects.exists()
    schedule.refresh_from_db()
    assert schedule.next_run_at is not None
    assert schedule.next_run_at > last
    (version,) = one.execute("SELECT xmin::text FROM pgqueue_schedule").fetchone() or ("",)
    fire_plans(rows, [planned._replace(version=version)], {})
    assert not runs_of(schedule)


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


@pytest.mark.django_db(transaction=True)
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


# -- maintenance


@pytest.mark.django_db(transaction=True)
def test_old_runs_are_deleted_except_the_last_and_those_that_wait(one: Connection, session: Session) -> None:
    schedule = ScheduleFactory.create()
    last = ago(days=20)
    for age, outcome in ((30, "enqueued"), (25, "waiting"), (9, "skipped"), (7, "enqueued")):
        ScheduleRun.objects.create(schedule=schedule, run_at=ago(days=age), outcome=outcome)
    ScheduleRun.objects.create(schedule=schedule, run_at=last, outcome="enqueued")
    Schedule.objects.update(last_run_at=last)
    rounds.sweep(session)
    kept = [round((datetime.now(UTC) - run).total_seconds() / 86400) for run in runs_of(schedule)]
    assert kept == [25, 20, 7]
    assert value(one, "SELECT count(*) FROM pgqueue_schedule_run") == 3


@pytest.mark.django_db(transaction=True)
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


# -- the timing of a schedule is edited while runs are overdue: in code, by ``save()``, in the admin, by SQL.
#    The runs that the old timing owed until the edit run, as ``catch_up`` says, and after them those of the
#    new one. The admin's forms and the rounds that fire at the same moment are in ``tests/races``.


Edit = Callable[[Schedule, Connection, Client], object]


def by_save(schedule: Schedule, _one: Connection, _client: Client) -> None:
    schedule.cron, schedule.every = None, RARELY["every"]
    schedule.save()


def by_sql(_schedule: Schedule, one: Connection, _client: Client) -> None:
    one.execute("UPDATE pgqueue_schedule SET cron = NULL, every = '3660 days'")


def by_admin(schedule: Schedule, _one: Connection, client: Client) -> None:
    client.force_login(User.objects.create_superuser("root"))
    sent = {
        "task_path": schedule.task_path, "args": "[]", "kwargs": "{}", "queue_name": "", "priority": "",
        "cron": "", "every": "3660 00:00:00", "timezone": "UTC", "jitter": "0", "catch_up": schedule.catch_up,
        "catch_up_limit": str(schedule.catch_up_limit), "overlap": schedule.overlap,
    }  # fmt: skip
    assert client.post(url("change", schedule.pk, model="schedule"), sent).status_code == 302


@pytest.mark.parametrize("edit", [by_save, by_sql, by_admin])
def test_runs_that_the_old_timing_owes_run(one: Connection, client: Client, edit: Edit) -> None:
    """No worker ran for three minutes. How many of them run is in the table of plans."""
    first = minute() - 3 * MINUTE
    schedule = overdue(first, catch_up="all")
    edit(schedule, one, client)
    edited: Any = Schedule.objects.get()
    owed = [first + number * MINUTE for number in range(10) if first + number * MINUTE <= edited.since]
    fire(one)
    assert runs_of(schedule) == owed
    assert outcomes(schedule) == ["enqueued"] * len(owed)
    assert len(jobs_of(schedule)) == len(owed)
    after: Any = Schedule.objects.get()
    assert (after.owed, after.last_run_at) == (None, owed[-1])
    assert (after.next_run_at - datetime(1970, 1, 1, tzinfo=UTC)) % RARELY["every"] == timedelta(0)
    assert fire(one) == 0


def test_edits_in_a_row(one: Connection) -> None:
    """Each timing counts for the time in which it was true, also if one of them comes back."""
    day = minute().replace(hour=0, minute=0) - timedelta(days=3)
    schedule = overdue(day, cron="0 * * * *", catch_up="all", catch_up_limit=1000)
    for timing in ({"cron": "30 * * * *"}, {"cron": "0 * * * *"}, RARELY):
        Schedule.objects.update(**timing)
    for place, edited in enumerate((90, 200, 330)):
        move_edit(one, place, day + edited * MINUTE)
    fire(one)
    assert [(run - day) / MINUTE for run in runs_of(schedule)] == [0, 60, 150, 240, 300]


def move_edit(one: Connection, place: int, when: datetime) -> None:
    """Let an edit that has just been made be one of the past."""
    moment = round(when.timestamp() * 1_000_000)
    last = value(one, "SELECT jsonb_array_length(owed) - 1 FROM pgqueue_schedule")
    one.execute(
        "UPDATE pgqueue_schedule SET owed = jsonb_set(owed, %s, to_jsonb(%s::bigint))",
        ([str(place), "until"], moment),
    )
    if place < last:
        one.execute(
            "UPDATE pgqueue_schedule SET owed = jsonb_set(owed, %s, to_jsonb(%s::bigint))",
            ([str(place + 1), "since"], moment),
        )
    else:
        one.execute("UPDATE pgqueue_schedule SET since = %s", (when,))


def test_a_timing_that_no_round_has_seen_owes_its_runs_too(one: Connection) -> None:
    """Its first run passed while no worker ran, so the row has no next run."""
    now = minute()
    schedule = overdue(catch_up="all")
    Schedule.objects.update(next_run_at=None, since=now - 2.5 * MINUTE)
    Schedule.objects.update(**RARELY)
    fire(one)
    assert runs_of(schedule)[:3] == [now - number * MINUTE for number in (2, 1, 0)]


def test_nothing_is_owed_if_no_run_is_due(one: Connection) -> None:
    schedule = overdue(ago(hours=-1))
    Schedule.objects.update(cron="*/2 * * * *")
    schedule.refresh_from_db()
    assert (schedule.owed, schedule.next_run_at) == (None, None)


def test_a_wrong_timing_owes_only_the_run_that_was_due(one: Connection) -> None:
    due = minute() - 3 * MINUTE
    schedule = overdue(due, catch_up="all")
    Schedule.objects.update(timezone="Mars")
    move_edit(one, 0, due + MINUTE / 2)
    Schedule.objects.update(timezone="UTC", **RARELY)
    broken: dict[str, str] = {}
    fire(one, broken)
    assert not broken
    assert runs_of(schedule) == [due]


@pytest.mark.parametrize("is_paused_first", [True, False])
def test_a_pause_owes_nothing(one: Connection, is_paused_first: bool) -> None:
    """Neither if the edit comes before the pause, nor if it comes while the schedule is paused. Until it is
    resumed, nothing fires.
    """
    schedule = overdue(ago(hours=1), catch_up="all")
    if is_paused_first:
        schedule.pause()
    Schedule.objects.update(**RARELY)
    if not is_paused_first:
        schedule.pause()
    assert fire(one) == 0
    if is_paused_first:
        assert Schedule.objects.get().next_run_at is None
    schedule.resume()
    assert Schedule.objects.get().owed is None
    fire(one)
    assert not jobs_of(schedule)


def test_saving_a_row_that_was_read_before_the_edit_forgets_nothing(one: Connection) -> None:
    schedule = overdue(minute() - 3 * MINUTE, catch_up="all")
    stale = Schedule.objects.get()
    Schedule.objects.update(**RARELY)
    stale.cron, stale.every, stale.jitter = None, RARELY["every"], timedelta(seconds=1)
    stale.save()
    fire(one)
    assert len(jobs_of(schedule)) >= 4


# -- the plan of a round, computed without a database


def at(clock: str) -> int:
    """Return a time of the day in microseconds."""
    hour, minute = map(int, clock.split(":"))
    return round(datetime(2026, 11, 23, hour, minute, tzinfo=UTC).timestamp() * 1_000_000)


def planned(**columns: Any) -> Plan:
    """Plan a schedule of the page "Run a task on a schedule": no worker has run since 11:55."""
    before = {"cron": "*/10 * * * *", "every": None, "timezone": "UTC", "since": at("08:00")}
    given: dict[str, Any] = {
        "name": "n", "version": "1", "cron": "0 * * * *", "every": None, "timezone": "UTC", "catch_up": "all",
        "catch_up_limit": 100, "next_run_at": at("12:00"), "last_run_at": at("11:50"), "since": at("12:35"),
        "now": at("14:05"), "owed": json.dumps([{**before, "until": at("12:35")}]), "call": None,
    }  # fmt: skip
    return plan(Due(**{**given, **columns}))


@pytest.mark.parametrize(
    ("columns", "runs"),
    [
        ({"catch_up": "skip", "now": at("14:00")}, ["14:00"]),
        ({}, ["12:00", "12:10", "12:20", "12:30", "13:00", "14:00"]),
        ({"catch_up_limit": 3}, ["12:30", "13:00", "14:00"]),
        ({"catch_up": "latest"}, ["14:00"]),
        # The clock of the server was set back after the edit: what was due by then still runs.
        ({"now": at("12:20")}, ["12:00", "12:10", "12:20", "12:30"]),
        # The next run was not computed yet when the times were edited.
        ({"next_run_at": None}, ["12:00", "12:10", "12:20", "12:30", "13:00", "14:00"]),
        # Somebody has moved the last run by hand.
        ({"last_run_at": at("12:15")}, ["12:20", "12:30", "13:00", "14:00"]),
        ({"owed": None}, ["12:00", "13:00", "14:00"]),
    ],
)
def test_the_runs_of_the_old_and_the_new_times(columns: dict[str, Any], runs: list[str]) -> None:
    found = planned(**columns)
    assert [f"{run:%H:%M}" for run in found.runs] == runs
    assert not found.is_missed
    assert planned(catch_up="skip").is_missed, "the last of all is too old"


def test_the_next_run_is_one_of_the_new_times() -> None:
    assert f"{planned().next_run_at:%H:%M}" == "15:00"
    assert f"{planned(now=at('12:40')).next_run_at:%H:%M}" == "13:00"
