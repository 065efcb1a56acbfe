"""A drain under a condition, and the plain drain of the same round that it is compared with.

All of these scenarios run our own queue only, with one worker process. The jobs are inserted with plain SQL,
as ``enqueue()`` would write them, because a million of them would take ``enqueue_many`` most of a minute.

The rate depends on what else the machine does. So a run also tells how long the processor worked for each
job, in the sessions of the worker and in the worker itself: what a condition really costs shows there.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from . import cpu
from .contestants import OURS
from .scenario import Target

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    import psycopg

    from .contender import Contender
    from .scenario import Bench, Figures

__all__ = ["FIGURE", "PLAIN", "drain", "insert", "number_of_jobs", "plain", "targets"]

PLAIN = "plain"
"""The name of the variant without any condition."""

FIGURE = "jobs/s"
"""The figure that ratios are about."""

LAST = "last tenth / first"
PAUSE = "longest pause ms"

ENOUGH = 0.9

_INSERT = """
    INSERT INTO pgqueue_job_live (task_path, max_attempts, on_lost, queue_name, priority, run_after)
    SELECT 'benchmarks.tasks.noop', 5, 'rerun', coalesce('q' || number %% %(queues)s, 'default'),
        %(priority)s + number %% %(priorities)s, clock_timestamp() + %(due_in)s * interval '1 second'
    FROM generate_series(1, %(jobs)s) AS number
"""


def number_of_jobs(bench: Bench, seconds: float | None = None) -> int:
    """Return how many jobs keep one worker process busy for about this time (default: that of one run)."""
    return int(bench.contenders[OURS].contestant.pace * (seconds or bench.seconds))


def insert(
    connection: psycopg.Connection[Any],
    jobs: int,
    *,
    queues: int | None = None,
    priorities: int = 1,
    priority: int = 0,
    due_in: float = 0,
) -> None:
    """Insert jobs that do nothing, spread evenly over queues (None: the default queue) and priorities."""
    given = {
        "jobs": jobs, "queues": queues, "priorities": priorities, "priority": priority, "due_in": due_in,
    }  # fmt: skip
    with connection.transaction():
        connection.execute("SET LOCAL pgqueue.notify = off")  # no worker runs
        connection.execute(_INSERT, given)


def drain(contender: Contender, jobs: int, beside: AbstractContextManager[object] | None = None) -> Figures:
    """Settle, start a worker, and wait until this number of jobs has run. ``beside`` happens meanwhile."""
    contender.settle()
    with beside or nullcontext(), contender.working() as workers:
        workers.wait_for(jobs)
        tenths = workers.tenths(jobs)
        pause = workers.longest_pause()
        spent = {
            "server us/job": cpu.of_sessions(contender.connection),
            "worker us/job": cpu.of_worker(workers.processes[0].pid),
        }
    return {
        FIGURE: 10 / sum(1 / rate for rate in tenths),
        LAST: tenths[-1] / tenths[0],
        PAUSE: pause * 1e3,
        **{name: seconds / jobs * 1e6 for name, seconds in spent.items() if seconds is not None},
    }


def plain(contender: Contender, jobs: int) -> Figures:
    """Drain jobs of one queue and one priority, with nothing beside them."""
    contender.start_again()
    insert(contender.connection, jobs)
    return drain(contender, jobs)


def targets(*variants: str, against: str = PLAIN) -> tuple[Target, ...]:
    """Return what each of these variants should reach: nearly the plain rate, and the same to the end."""
    return (
        *(Target(FIGURE, ENOUGH, variant, against) for variant in variants),
        *(Target(LAST, ENOUGH, variant) for variant in variants),
    )
