"""Wrong clocks of the application: an hour off, and stepping back and forth. The server's clock decides."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import count, pairwise
from pathlib import Path
from random import Random
from typing import Any

from django.db.models.functions import Now

from django_pgqueue import enqueue, pause
from django_pgqueue.models import Job, Schedule, ScheduleRun, UniqueWindow
from django_pgqueue.postgres.clock import server_now
from django_pgqueue.tasks.task import BoundTask
from tests.app import ledger_tasks as tasks
from tests.app.tasks import noop
from tests.app.unique_tasks import remind
from tests.support.commands import ROOT, django_environment
from tests.support.limits import most_in_window
from tests.support.machines import Clock, lacks_faketime
from tests.support.waiting import until

from ..harness.audit import Audit
from ..harness.ledger import FOLDER, Ledger, explanation
from ..harness.load import Load
from ..harness.scenario import Scenario
from ..harness.stage import PATIENCE, Stage
from .processes import BURST, LATE, RATE, SHORT_LEASE, kill_supervisor

EXACT = 0.05
"""Seconds by which something may come too soon: clocks of one machine, and what rounding does."""
TOO_LATE = 300.0
"""Seconds by which something may come too late on a busy machine. A wrong clock is off by an hour."""
NAP = 1.0
"""Seconds for which the jobs of the load snooze, sleep, or wait for a signal."""
PAUSED, TIMEOUT, TICKS = 4.0, 3.0, 3
HOUR = 3600.0
DELAY, EXPIRY, SECOND = timedelta(seconds=1), timedelta(minutes=30), timedelta(seconds=1)
MANY = 10**6
"""Numbers that a web process may give to its jobs."""


class Clocks:
    """The clocks of the workers and of the web processes. Each is wrong in its own way."""

    def __init__(self, folder: Path) -> None:
        self.workers = Clock(folder / "clock-of-workers", HOUR)
        self.web = Clock(folder / "clock-of-web", -HOUR)
        self.env = self.workers.env
        self.web_processes = count(1)

    def step(self, stage: Stage, wrong: float) -> None:
        """Let the clocks be wrong by so many seconds, in opposite directions."""
        with stage.havoc.fault("clock stepped", explains=False):
            self.workers.set(wrong)
            self.web.set(-wrong)
        time.sleep(stage.choice.uniform(0.3, 0.8))


@contextmanager
def wrong_clocks(folder: Path) -> Iterator[Clocks]:
    """Let the workers be an hour ahead, and the web processes behind. The server has the right time."""
    yield Clocks(folder)


def _web_process(env: Mapping[str, str], call: str) -> subprocess.Popen[str]:
    """Call a function of this module in a web process."""
    return subprocess.Popen(
        [sys.executable, "-m", "django", "shell", "--no-imports", "-c",
         f"from {__name__} import *; {call}"],
        cwd=ROOT, env={**django_environment(), **env}, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        text=True,
    )  # fmt: skip


# --- A load that has to do with time


def step(stage: Stage) -> None:
    """Let the clocks of the workers and of a web process step back and forth, while both work."""
    clocks: Clocks = stage.world
    first = next(clocks.web_processes) * MANY
    env = {**clocks.web.env, FOLDER: str(stage.ledger.folder)}
    web = _web_process(env, f"enqueue_until_told({first}, {stage.choice.random()})")
    try:
        until(
            lambda: any(run.number >= first for run in stage.accounts().runs),
            seconds=PATIENCE,
            what="a job of the web process begins",
        )
        for wrong in stage.choice.sample([-HOUR, 0.0, HOUR, 24 * HOUR, 720 * HOUR], 4):
            clocks.step(stage, wrong)
    finally:
        web.communicate(timeout=60)  # which closes its standard input
    assert web.returncode == 0, f"the web process ended with {web.returncode}, and its log says why"


def enqueue_until_told(first: int, seed: float) -> None:
    """In a web process: enqueue calls, from the number `first` on, until standard input ends."""
    ledger = Ledger(os.environ[FOLDER])
    with Load(ledger, Random(seed), rate=40, backlog=60, mix=timed, first=first).running():
        sys.stdin.read()


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


def times_hold(stage: Stage, audit: Audit) -> list[str]:
    """Return where a time is not the one of the server, a job started too soon, or a rate was not kept."""
    delays = {tasks.sync_effect.module_path: DELAY, tasks.expires.module_path: timedelta()}
    jobs = Job.objects.filter(task_path__in=delays, args__0__gte=MANY)
    now = server_now("default")
    problems = [
        f"the times of a job are not those of the server: {vars(job)}"
        for job in jobs
        if not (
            abs(job.run_after - job.enqueued_at - delays[job.task_path]) < SECOND / 10
            and (not job.expires_at or abs(job.expires_at - job.enqueued_at - EXPIRY) < SECOND)
            and (not job.started_at or job.run_after <= job.started_at)  # not if it has expired
            and job.finished_at
            and job.enqueued_at <= job.finished_at <= now < job.enqueued_at + timedelta(hours=1)
        )
    ]
    if not jobs:
        problems.append("the web process has enqueued nothing")
    rated = Job.objects.filter(task_path=tasks.rated.module_path)
    starts = most_in_window(sorted(job.started_at for job in rated if job.started_at), SECOND)
    if starts > BURST + RATE * (1 + LATE):
        problems.append(f"{starts} starts of a rate within a second")
    return problems + runs_again_in_time(audit)


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


# --- What a web process plans ahead


def keep_time(stage: Stage) -> None:
    """Let the clocks step while a schedule runs, pauses end, and jobs reach their timeouts."""
    clocks: Clocks = stage.world
    name = f"plan-{next(clocks.web_processes)}"
    clocks.web.set(HOUR)  # by its clock, the end of a pause that it is given is over
    told, _ = _web_process(clocks.web.env, f"plan_ahead({name!r})").communicate(timeout=60)
    (first, second), *ends = json.loads(told)
    ends = [datetime.fromisoformat(end) for end in ends]
    for end in ends:
        _near(end - timedelta(seconds=PAUSED), datetime.now(UTC), 0.0, f"a pause of {PAUSED:g} s began")
    held = [_held(stage, f"{name}-{how}") for how in ("until", "for")]
    late = stage.load.enqueue(tasks.times_out.bind, expects="failed")
    patient = stage.load.enqueue(lambda number: tasks.in_time.bind(number, TIMEOUT + 1))
    stage.begun(late)
    stage.begun(patient)
    for wrong in (stage.choice.choice([HOUR, 24 * HOUR, 720 * HOUR]), -HOUR):
        clocks.step(stage, wrong)
    ended = stage.over(late)
    ends_of = [ended.status, *(error["class"] for error in ended.errors)]
    assert ends_of == ["failed", "django_pgqueue.exceptions.TaskTimeout"], f"a job with a timeout: {ends_of}"
    _near(ended.last_attempted_at, ended.finished_at, TIMEOUT, "a job with a timeout ended")
    ended = stage.over(patient)
    _near(ended.last_attempted_at, ended.finished_at, TIMEOUT + 1, "a job ended before its timeout")
    for number, end in zip(held, ends, strict=True):
        _near(end, stage.over(number).last_attempted_at, 0.0, "after the pause of its queue, a job started")
    assert first == second, f"the window of job {first} did not keep out job {second}"
    window = UniqueWindow.objects.get(job_id=first)
    length = window.until - Job.objects.get(pk=first).enqueued_at
    assert abs(length - timedelta(hours=1)) < SECOND, f"the window is open for {length}"
    _runs(name)


def plan_ahead(name: str) -> None:
    """In a web process: start a schedule, enqueue a job twice within the window of its key, pause a queue
    until a time, and another one for a time. Print the ids of both jobs, and when the pauses end.
    """
    values: dict[str, Any] = {"task_path": noop.module_path, "every": SECOND, "catch_up": "all"}
    schedule = Schedule(name=name, **values)
    schedule.full_clean()
    schedule.save()
    jobs = [enqueue(remind, int(name.rpartition("-")[2])).pk for _ in range(2)]
    length = timedelta(seconds=PAUSED)
    pauses = [
        pause(queue=f"{name}-until", until=server_now("default") + length),
        pause(queue=f"{name}-for", duration=length),
    ]
    print(json.dumps([jobs, *(str(each.until) for each in pauses)]))


def _held(stage: Stage, queue: str) -> int:
    return stage.load.enqueue(lambda number: tasks.sync_effect.using(queue_name=queue).bind(number, 0.0))


def _near(since: datetime | None, at: datetime | None, seconds: float, what: str) -> None:
    """Check that something happened so many seconds after a time. A busy machine is late."""
    assert since is not None
    assert at is not None
    after = (at - since).total_seconds()
    assert seconds - EXACT <= after <= seconds + TOO_LATE, f"{what} after {after} s instead of {seconds:g} s"


def _runs(name: str) -> None:
    """Each second that has passed by the clock of the server has become one job, and no other has."""
    runs = ScheduleRun.objects.filter(schedule=name)
    until(lambda: runs.count() >= TICKS, seconds=PATIENCE, what=f"{TICKS} runs of a schedule")
    Schedule.objects.filter(name=name).update(paused_at=Now())
    found = list(runs.order_by("run_at"))
    jobs = Job.objects.in_bulk([run.job_id for run in found])
    assert len(jobs) == len(found), f"{len(found)} runs have made {len(jobs)} jobs"
    for before, after in pairwise(found):
        assert after.run_at - before.run_at == SECOND, f"from {before.run_at} to {after.run_at}"
    for run in found:
        _near(run.run_at, jobs[run.job_id].enqueued_at, 0.0, f"the run of {run.run_at} was enqueued")
    Schedule.objects.filter(name=name).delete()


SCENARIOS = [
    Scenario(
        name="wrong clocks",
        promises=("no-second-run", "schedule-once", "schedule-constraint"),
        faults=(step, keep_time, kill_supervisor),
        settings=SHORT_LEASE,
        world=wrong_clocks,
        lacks=lacks_faketime,
        check=times_hold,
        within={"killed supervisor": 5.0},
    )
]
