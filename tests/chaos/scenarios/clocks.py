"""Wrong clocks of the application: an hour off, and stepping back and forth. The server's clock decides."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

from django.db import connection

from django_pgqueue.tasks.task import BoundTask
from tests.app import ledger_tasks as tasks
from tests.support.clocks import Clock, lacks_faketime
from tests.support.waiting import until

from ..harness.audit import Audit
from ..harness.client import client
from ..harness.ledger import FOLDER
from ..harness.scenario import Scenario
from ..harness.stage import PATIENCE, Stage
from .processes import SHORT_LEASE, kill_supervisor
from .timetable import NAP, keep_time, runs_again_in_time

__all__ = ["SCENARIOS", "timed"]

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
        """How many have planned ahead (``timetable``)."""


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
    rows = _ask(_TIMES, list(promised))
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
    [(starts,)] = _ask(_STARTS, tasks.rated.module_path)
    if (starts or 0) > BURST + RATE * (WINDOW + LATE):
        problems.append(f"{starts} starts of a rate within {WINDOW:g} s")
    return problems + runs_again_in_time(audit)


def _ask(query: str, parameter: Any) -> list[Any]:
    with connection.cursor() as cursor:
        cursor.execute(query, [parameter])
        rows: list[Any] = cursor.fetchall()
    return rows


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
    ),
]
