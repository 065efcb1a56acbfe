"""Wrong clocks of the application: an hour off, and stepping back and forth. The server's clock decides."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import pairwise
from pathlib import Path
from random import Random

from django.db.models.functions import Now

from django_pgqueue import enqueue, pause
from django_pgqueue.models import Job, Schedule, ScheduleRun, UniqueWindow
from django_pgqueue.postgres.clock import server_now
from django_pgqueue.tasks.task import BoundTask
from tests.app import ledger_tasks as tasks
from tests.app.tasks import noop
from tests.app.unique_tasks import remind
from tests.support.jobs import fetch, sql
from tests.support.machines import Clock, lacks_faketime
from tests.support.waiting import until

from ..harness.audit import Audit
from ..harness.calls import called, client
from ..harness.ledger import FOLDER, explanation
from ..harness.scenario import Scenario
from ..harness.stage import PATIENCE, Stage
from .processes import SHORT_LEASE, kill_supervisor

EXACT = 0.05
"""Seconds by which something may come too soon: clocks of one machine, and what rounding does."""
TOO_LATE = 300.0
"""Seconds by which something may come too late on a busy machine. A wrong clock is off by an hour."""
NAP = 1.0
"""Seconds for which the jobs of the load snooze, sleep, or wait for a signal."""
PAUSED, TIMEOUT, TICKS = 4.0, 3.0, 3


def plan_ahead(name: str) -> tuple[list[int], list[str]]:
    """In a web process: start a schedule, enqueue a job twice within the window of its key, pause a queue
    until a time, and another one for a time. Return the ids of both jobs, and when the pauses end.
    """
    values = {"task_path": noop.module_path, "every": timedelta(seconds=1), "catch_up": "all"}
    schedule = Schedule(name=name, **values)
    schedule.full_clean()
    schedule.save()
    jobs = [enqueue(remind, int(name.rpartition("-")[2])).pk for _ in range(2)]
    length = timedelta(seconds=PAUSED)
    pauses = [
        pause(queue=f"{name}-until", until=server_now("default") + length),
        pause(queue=f"{name}-for", duration=length),
    ]
    return jobs, [str(each.until) for each in pauses]


def keep_time(stage: Stage) -> None:
    """Let the clocks step while a schedule runs, pauses end, and jobs reach their timeouts."""
    clocks = stage.world
    clocks.plans += 1
    name = f"plan-{clocks.plans}"
    clocks.web.set(HOUR)  # by its clock, the end of a pause that it is given is over
    (first, second), ends = called(clocks.web.env, f"{__name__}.plan_ahead", name)
    for end in ends:
        left = datetime.fromisoformat(end) - datetime.now(UTC)
        assert -TOO_LATE <= left.total_seconds() <= PAUSED + EXACT, f"a pause of {PAUSED:g} s ends in {left}"
    held = [stage.load.enqueue(partial(_held, f"{name}-{how}")) for how in ("until", "for")]
    late = stage.load.enqueue(tasks.times_out.bind, expects="failed")
    patient = stage.load.enqueue(lambda number: tasks.in_time.bind(number, TIMEOUT + 1))
    stage.begun(late)
    stage.begun(patient)
    for wrong in (stage.choice.choice([HOUR, 24 * HOUR, 720 * HOUR]), -HOUR):
        with stage.havoc.fault("clock stepped", explains=False):
            clocks.workers.set(wrong)
            clocks.web.set(-wrong)
        time.sleep(stage.choice.uniform(0.3, 0.6))
    _timed_out(stage.over(late))
    _near(stage.over(patient), TIMEOUT + 1, "a job that is done before its timeout ran for")
    for number, end in zip(held, ends, strict=True):
        _after_its_pause(stage.over(number), datetime.fromisoformat(end))
    _one_window(first, second)
    _runs(name)


def _held(queue: str, number: int) -> BoundTask:
    return tasks.sync_effect.using(queue_name=queue).bind(number, 0.0)


def _timed_out(job: Job) -> None:
    ends = [job.status, *(error["class"] for error in job.errors)]
    assert ends == ["failed", "django_pgqueue.exceptions.TaskTimeout"], f"a job with a timeout ended: {ends}"
    _near(job, TIMEOUT, "a job with a timeout ran for")


def _near(job: Job, seconds: float, what: str) -> None:
    assert job.finished_at is not None
    assert job.last_attempted_at is not None
    ran = (job.finished_at - job.last_attempted_at).total_seconds()
    assert seconds - EXACT <= ran <= seconds + TOO_LATE, f"{what} {ran} s instead of {seconds:g} s"


def _after_its_pause(job: Job, end: datetime) -> None:
    """A pause of a queue ends by itself, and then its jobs start, with what the worker was told to wait."""
    assert job.last_attempted_at is not None
    waited = (job.last_attempted_at - end).total_seconds()
    assert -EXACT <= waited <= TOO_LATE, f"a job started {waited} s after the pause of its queue ended"


def _one_window(first: int, second: int) -> None:
    """The second call was within the window of the first. The window has its full length."""
    assert first == second, f"the window of job {first} did not keep out job {second}"
    job = Job.objects.get(pk=first)
    window = UniqueWindow.objects.get(job_id=first)
    length = window.until - job.enqueued_at
    assert abs(length - timedelta(hours=1)) < timedelta(seconds=1), f"the window is open for {length}"


def _runs(name: str) -> None:
    """Each second that has passed by the clock of the server has become one job, and no other has."""
    runs = ScheduleRun.objects.filter(schedule=name)
    until(lambda: runs.count() >= TICKS, seconds=PATIENCE, what=f"{TICKS} runs of a schedule")
    Schedule.objects.filter(name=name).update(paused_at=Now())
    found = list(runs.order_by("run_at").annotate(now=Now()))
    jobs = Job.objects.in_bulk([run.job_id for run in found])
    assert len(jobs) == len(found), f"{len(found)} runs have made {len(jobs)} jobs"
    for before, after in pairwise(found):
        assert after.run_at - before.run_at == timedelta(seconds=1), f"from {before.run_at} to {after.run_at}"
    for run in found:
        late = (jobs[run.job_id].enqueued_at - run.run_at).total_seconds()
        assert -EXACT <= late <= TOO_LATE, f"the run of {run.run_at} was enqueued {late} s later"
    Schedule.objects.filter(name=name).delete()


def runs_again_in_time(audit: Audit) -> list[str]:
    """Return which jobs that snooze or sleep ran again too soon, or much too late. Those that lost their
    worker meanwhile are left out.
    """
    paths = [task.module_path for task in (tasks.snoozes, tasks.sleeps, tasks.waits)]
    problems, shown = [], set[str]()
    for row in audit.rows:
        if row.task_path not in paths:
            continue
        runs = audit.runs_of.get(row.pk, [])
        if len(runs) == 1:
            problems.append(f"{row.task_path} did not wait: {runs}")
        for first, second in pairwise(runs):
            if explanation(first, second, audit.accounts.faults) is not None:
                continue
            shown.add(row.task_path)
            waited = second.claimed - first.claimed
            if not NAP - EXACT <= waited <= NAP + TOO_LATE:
                problems.append(f"{row.task_path} ran again after {waited} s instead of {NAP:g} s")
    return problems + [f"no job of {path} ran again" for path in paths if path not in shown]


HOUR = 3600.0
DELAY = timedelta(seconds=1)
EXPIRY = timedelta(minutes=30)
PRECISE = 1.0
"""Seconds by which a time may differ from the promised one. A wrong clock is off by an hour."""
RATE, BURST, WINDOW, LATE = 25, 5, 1.0, 0.25  # of tasks.rated, and how its starts are counted


class Clocks:
    """The clocks of the workers and of the web processes. Each is wrong in its own way."""

    def __init__(self, folder: Path) -> None:
        self.workers = Clock(folder / "clock-of-workers", HOUR)
        self.web = Clock(folder / "clock-of-web", -HOUR)
        self.env = self.workers.env
        self.clients = 0
        """How many web processes have enqueued jobs."""
        self.plans = 0
        """How many have planned ahead (``plan_ahead``)."""


@contextmanager
def wrong_clocks(folder: Path) -> Iterator[Clocks]:
    """Let the workers be an hour ahead, and the web processes behind. The server has the right time."""
    yield Clocks(folder)


def timed(number: int, choice: Random) -> BoundTask:
    """Return a call that has to do with time, or fails and is retried."""
    seconds = choice.uniform(0.0, 0.02)
    kind = choice.randrange(10)
    if kind < 2:
        return tasks.sync_effect.using(run_after=DELAY).bind(number, seconds)
    if kind < 4:
        return tasks.expires.bind(number, seconds)
    if kind < 5:
        return tasks.rated.bind(number, 0, seconds)
    if kind < 8:
        return (tasks.snoozes, tasks.sleeps, tasks.waits)[number % 3].bind(number, NAP)
    return tasks.fails_once.bind(number, seconds)


def step(stage: Stage) -> None:
    """Let the clocks of the workers and of a web process step back and forth, while both work."""
    clocks: Clocks = stage.world
    clocks.clients += 1
    env = {**clocks.web.env, FOLDER: str(stage.ledger.folder)}
    first = clocks.clients * 10**6
    with client(env, "tests.chaos.scenarios.clocks.timed", first, 40, 60, stage.choice.random()):
        until(
            lambda: any(run.number >= first for run in stage.accounts().runs),
            seconds=PATIENCE,
            what="a job of the web process begins",
        )
        for wrong in stage.choice.sample([-HOUR, 0.0, HOUR, 24 * HOUR, 720 * HOUR], 4):
            with stage.havoc.fault("clock stepped", explains=False):
                clocks.workers.set(wrong)
                clocks.web.set(-wrong)
            time.sleep(stage.choice.uniform(0.3, 0.8))
    stage.all_up()


_TIMES = """
    SELECT task_path, extract(epoch FROM run_after - enqueued_at)::float8,
        extract(epoch FROM expires_at - enqueued_at)::float8,
        extract(epoch FROM started_at - run_after)::float8,
        extract(epoch FROM clock_timestamp() - enqueued_at)::float8,
        extract(epoch FROM clock_timestamp() - finished_at)::float8
    FROM pgqueue_job WHERE task_path = ANY (%s) AND (args ->> 0)::bigint >= 1000000
"""
_STARTS = """
    SELECT max(starts) FROM (
        SELECT count(*) OVER (
            ORDER BY started_at RANGE BETWEEN '1 second' PRECEDING AND CURRENT ROW
        ) AS starts
        FROM pgqueue_job WHERE task_path = %s AND (args ->> 0)::bigint >= 1000000
    ) AS counted
"""


def times_hold(stage: Stage, audit: Audit) -> list[str]:
    """Return where a time is not the one of the server, a job started too soon, or a rate was not kept."""
    problems = []
    promised = {tasks.sync_effect.module_path: DELAY.total_seconds(), tasks.expires.module_path: 0.0}
    rows = fetch(_TIMES, list(promised))
    for path, delay, expiry, waited, age, over in rows:
        if abs(delay - promised[path]) > PRECISE / 10:
            problems.append(f"a job that should wait for {promised[path]:g} s was to wait for {delay} s")
        if expiry is not None and abs(expiry - EXPIRY.total_seconds()) > PRECISE:
            problems.append(f"a job that should expire after {EXPIRY} was to expire after {expiry} s")
        if waited is not None and waited < 0:  # None if it has expired
            problems.append(f"a job started {-waited} s before its time")
        if not 0 <= over <= age < HOUR:
            problems.append(f"a job is {age} s old and has been over for {over} s")
    if not rows:
        problems.append("the web process has enqueued nothing")
    starts = sql(_STARTS, tasks.rated.module_path)
    if (starts or 0) > BURST + RATE * (WINDOW + LATE):
        problems.append(f"{starts} starts of a rate within {WINDOW:g} s")
    return problems + runs_again_in_time(audit)


SCENARIOS = [
    Scenario(
        name="wrong clocks",
        promises=("no-second-run", "schedule-once", "schedule-constraint"),
        expects="""
            The clocks of workers and of web processes may be wrong by an hour, a day or a month, and step
            back and forth: delays, expiry, retries, rates, snoozes, sleeps, events, timeouts, pauses, unique
            windows, schedules, retention, heartbeats and leases follow the clock of the server. So nothing
            starts too soon, is interrupted, is lost, runs twice or waits for an hour, and each tick of a
            schedule becomes one job at its time. The jobs of a killed supervisor run again after its lease.
        """,
        faults=(step, keep_time, kill_supervisor),
        settings=SHORT_LEASE,
        world=wrong_clocks,
        lacks=lacks_faketime,
        check=times_hold,
        within={"killed supervisor": 5.0},
    )
]
