"""Jobs with limit keys, against plain jobs: a line that nobody moves, and ten thousand keys of limit 1.

Jobs that are enqueued one by one are all claimable, and the claim puts them in line. Those of one
``enqueue_many`` are in line from the start, except for the first of each key.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from benchmarks.adverse import FIGURE, PLAIN, drain, insert, number_of_jobs, plain
from benchmarks.contestants import OURS
from benchmarks.scenario import Bench, Scenario, Target, Variant

if TYPE_CHECKING:
    from benchmarks.contender import Contender
    from benchmarks.scenario import Figures

__all__ = ["SCENARIOS"]

BEHIND = "behind a line"
ONE_BY_ONE = "keys, one by one"
BULK = "keys, in bulk"
LINE = 100_000
KEYS = 10_000
JOBS = 100_000

# Its worker sends no heartbeats, but none is expected before tomorrow.
_HOLDER = """
    WITH worker AS (
        INSERT INTO pgqueue_worker (id, host, pid, supervisor, queues, exclude_queues, slots, version, state,
            holds_lock, started_at, heartbeat_at)
        VALUES (1, 'holder', 1, 1, '{}', '{}', 1, '', 'running', false, now(), now() + interval '1 day')
    )
    INSERT INTO pgqueue_job_live (task_path, status, attempts, worker, lease, limit_key, wait_position)
    VALUES ('benchmarks.tasks.noop', 'running', 1, 1, 1, 'line', 1)
"""
_LINE = """
    INSERT INTO pgqueue_job_live (id, task_path, max_attempts, on_lost, status, limit_key, wait_position)
    SELECT id, 'benchmarks.tasks.noop', 5, 'rerun', 'blocked', 'line', id
    FROM (SELECT nextval('pgqueue_job_id_seq') AS id FROM generate_series(1, %(jobs)s)) AS new
"""
_KEYED = """
    INSERT INTO pgqueue_job_live (id, task_path, max_attempts, on_lost, status, limit_key, wait_position)
    SELECT id, 'benchmarks.tasks.noop', 5, 'rerun',
        CASE WHEN %(bulk)s AND number >= %(keys)s THEN 'blocked' ELSE 'pending' END, 'key/' || number %%
        %(keys)s, id
    FROM (
        SELECT nextval('pgqueue_job_id_seq') AS id, number FROM generate_series(0, %(jobs)s - 1) AS number
    ) AS new
"""


def behind(contender: Contender, jobs: int) -> Figures:
    """Drain plain jobs while many others are in line behind a job that does not end."""
    contender.start_again()
    with contender.connection.transaction():
        contender.connection.execute(_HOLDER)
        contender.connection.execute(_LINE, {"jobs": LINE})
    insert(contender.connection, jobs)
    return drain(contender, jobs)


def keyed(contender: Contender, *, bulk: bool) -> Figures:
    """Drain jobs of many keys, ten of each."""
    contender.start_again()
    with contender.connection.transaction():
        contender.connection.execute("SET LOCAL pgqueue.notify = off")
        contender.connection.execute(_KEYED, {"jobs": JOBS, "keys": KEYS, "bulk": bulk})
    return drain(contender, JOBS)


def variants(bench: Bench) -> list[Variant]:
    """Return the variants."""
    ours, jobs = bench.contenders[OURS], number_of_jobs(bench)
    return [
        Variant(PLAIN, partial(plain, ours, jobs)),
        Variant(BEHIND, partial(behind, ours, jobs)),
        Variant(ONE_BY_ONE, partial(keyed, ours, bulk=False)),
        Variant(BULK, partial(keyed, ours, bulk=True)),
    ]


SCENARIOS = [
    Scenario(
        name="keys",
        title="Limit keys",
        about="No-op jobs, one worker process: 100,000 jobs blocked behind one key; 10,000 keys of limit 1.",
        figure=FIGURE,
        variants=variants,
        baseline=PLAIN,
        rounds=2,
        contestants=(OURS,),
        targets=(
            Target(FIGURE, 0.9, BEHIND, PLAIN),
            Target(FIGURE, 0.5, ONE_BY_ONE, PLAIN),
            Target(FIGURE, 0.5, BULK, PLAIN),
        ),
    )
]
