"""Schedules that are due in the same second: how soon the last job is there, with four supervisors."""

from __future__ import annotations

import time
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

from benchmarks.contender import STUCK_SECONDS, StuckError
from benchmarks.contestants import OURS
from benchmarks.scenario import Bench, Scenario, Target, Variant

if TYPE_CHECKING:
    from benchmarks.contender import Contender
    from benchmarks.scenario import Figures

__all__ = ["SCENARIOS"]

DUE = "1,000 due at once"
FEW = "10 due at once"
SUPERVISORS = 4
AHEAD = 4  # seconds until they are due: the supervisors sleep until then

_INSERT = """
    INSERT INTO pgqueue_schedule (name, task_path, queue_name, cron, timezone)
    SELECT 'schedule-' || number, 'benchmarks.tasks.noop', 'served-by-nobody', '*/5 * * * *', 'Europe/Paris'
    FROM generate_series(1, %s) AS number
"""
_DUE = """
    UPDATE pgqueue_schedule SET since = now() - interval '1 day',
        next_run_at = date_trunc('second', now()) + %s * interval '1 second'
    RETURNING next_run_at
"""
_FIRED = """
    SELECT count(*), count(DISTINCT schedule), extract(epoch FROM clock_timestamp() - %s)::float8
    FROM pgqueue_schedule_run WHERE job_id IS NOT NULL
"""


def due_at_once(contender: Contender, schedules: int) -> Figures:
    """Let all be due at the same moment, and wait for the last job."""
    contender.start_again()
    contender.connection.execute("TRUNCATE pgqueue_schedule, pgqueue_schedule_run")
    with ExitStack() as stack:
        workers = [
            stack.enter_context(contender.working(1, 1, ("--queues", "another"))) for _ in range(SUPERVISORS)
        ]
        while len(_registered(contender)) < SUPERVISORS:
            time.sleep(0.1)
        contender.connection.execute(_INSERT, (schedules,))
        (run,) = contender.connection.execute(_DUE, (AHEAD,)).fetchone() or (None,)
        give_up = time.monotonic() + STUCK_SECONDS
        while True:
            row = contender.connection.execute(_FIRED, (run,)).fetchone()
            count, names, seconds = row or (0, 0, 0.0)
            if names >= schedules:
                break
            if time.monotonic() > give_up:
                raise StuckError(f"{contender.name}: only {names} of {schedules} schedules fired")
            time.sleep(0.005)
        time.sleep(2.0)  # would anybody fire again?
        for each in workers:
            each.check()
    (jobs,) = contender.connection.execute("SELECT count(*) FROM pgqueue_job_live").fetchone() or (0,)
    return {"seconds": float(seconds), "jobs/schedule": max(int(jobs), int(count)) / schedules}


def _registered(contender: Contender) -> list[object]:
    return list(contender.connection.execute("SELECT id FROM pgqueue_worker").fetchall())


def variants(bench: Bench) -> list[Variant]:
    """Return the variants."""
    (ours,) = bench.among(OURS)
    return [Variant(name, partial(due_at_once, ours, count)) for name, count in ((FEW, 10), (DUE, 1_000))]


SCENARIOS = [
    Scenario(
        name="schedules",
        title="Schedules that are due in the same second",
        about=f"{SUPERVISORS} supervisors; the time from the run until the last job is committed.",
        figure="seconds",
        variants=variants,
        baseline=FEW,
        rounds=3,
        lower_is_better=True,
        contestants=(OURS,),
        targets=(
            Target("seconds", 1.0, DUE, at_most=True),
            Target("jobs/schedule", 1.0, DUE, at_most=True),
        ),
    )
]
