"""What a step costs the server: its record in the database, without the wait for the disk.

One statement makes many records for many running jobs, so that neither the network nor the commit counts.
The floor is the same number of rows that are inserted into the same table without any check.
"""

from __future__ import annotations

from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING

from benchmarks.contestants import OURS
from benchmarks.scenario import Bench, Scenario, Target, Variant

if TYPE_CHECKING:
    from benchmarks.contender import Contender
    from benchmarks.scenario import Figures

__all__ = ["SCENARIOS"]

FIGURE = "us/step"
STEPS = 10  # of each job
MOST_MICROSECONDS = 200

_JOBS = """
    INSERT INTO pgqueue_job_live (task_path, status, worker, lease, attempts)
    SELECT 'benchmarks.tasks.noop', 'running', 1, 1, 1 FROM generate_series(1, %s)
"""
_EACH = "FROM (SELECT id FROM pgqueue_job_live ORDER BY id) AS job, generate_series(1, %(steps)s) AS step"
_CALLS = {
    "rows without checks": (
        "INSERT INTO pgqueue_step (job_id, name, attempt, seconds, finished_at, result)"
        f" SELECT job.id, 'step-' || step, 1, 0.1, clock_timestamp(), '{{\"a\": 1}}' {_EACH}"
    ),
    "steps": (
        "SELECT count(_pgqueue_record_step("
        "job.id, 1, step = 1, 1, 'step-' || step, 0.1, 123, '{\"a\": 1}'))"
        f" {_EACH}"
    ),
}


def records(contender: Contender, jobs: int, statement: str) -> Figures:
    """Return the microseconds of one step."""
    contender.start_again()
    contender.connection.execute("TRUNCATE pgqueue_step")
    contender.connection.execute(_JOBS, [jobs])
    contender.settle()
    began = perf_counter()
    contender.connection.execute(statement, {"steps": STEPS})
    return {FIGURE: (perf_counter() - began) / (jobs * STEPS) * 1e6}


def variants(bench: Bench) -> list[Variant]:
    """Return the variants."""
    ours, jobs = bench.contenders[OURS], int(200 * bench.seconds)
    return [Variant(name, partial(records, ours, jobs, statement)) for name, statement in _CALLS.items()]


SCENARIOS = [
    Scenario(
        name="steps",
        title="A job records a step",
        about=f"The time of the server, for jobs with {STEPS} steps each. Each step is also one commit.",
        figure=FIGURE,
        variants=variants,
        baseline="rows without checks",
        rounds=3,
        lower_is_better=True,
        contestants=(OURS,),
        targets=(Target(FIGURE, MOST_MICROSECONDS, "steps", at_most=True),),
    )
]
