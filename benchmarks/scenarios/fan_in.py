"""Fan-in: what it costs that others wait for jobs, and to add members to a batch.

A worker runs no-op jobs: plain ones, the members of one batch with a callback, and jobs of which each hundred
have a job that waits for them by edges.
"""

from __future__ import annotations

import json
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING

from benchmarks.adverse import FIGURE, PLAIN, drain, plain
from benchmarks.contestants import OURS
from benchmarks.scenario import Bench, Scenario, Target, Variant

if TYPE_CHECKING:
    from benchmarks.contender import Contender
    from benchmarks.scenario import Figures

__all__ = ["SCENARIOS"]

JOBS = 10_000
FAN = 100  # parents of a job by edges
CHUNK = 1_000  # jobs in one statement, as enqueue_many sends them
BATCH, EDGES, ADDED, IN_BULK = "batch", "edges", "added", "enqueue_many"

_JOBS = """
    INSERT INTO pgqueue_job_live (task_path, max_attempts, on_lost, marks, batch)
    SELECT 'benchmarks.tasks.noop', 5, 'rerun', %(marks)s, %(batch)s
    FROM generate_series(1, %(jobs)s)
"""
_CHILDREN = """
    WITH child AS (
        INSERT INTO pgqueue_job_live (task_path, max_attempts, on_lost, status, waiting_reason, parents)
        SELECT 'benchmarks.tasks.noop', 5, 'rerun', 'blocked', 'waits for jobs', array_agg(parent.id)
        FROM (SELECT id, row_number() OVER (ORDER BY id) AS nth FROM pgqueue_job_live) AS parent
        GROUP BY (parent.nth - 1) / %(fan)s
        RETURNING id, parents
    )
    INSERT INTO pgqueue_edge (parent_id, child_id) SELECT unnest(child.parents), child.id FROM child
"""
_ENQUEUE = """
    SELECT _pgqueue_enqueue_many(
        0, array_fill('benchmarks.tasks.noop'::text, ARRAY[n]), array_fill('[]'::jsonb, ARRAY[n]),
        array_fill('{}'::jsonb, ARRAY[n]), array_fill('{}'::jsonb, ARRAY[n]),
        array_fill('default'::text, ARRAY[n]), array_fill(0, ARRAY[n]),
        array_fill(NULL::timestamptz, ARRAY[n]), array_fill(NULL::float8, ARRAY[n]),
        array_fill(NULL::float8, ARRAY[n]), array_fill(5, ARRAY[n]), array_fill(NULL::integer, ARRAY[n]),
        array_fill('rerun'::text, ARRAY[n]), NULL, NULL, NULL, %(batch)s::bigint)
    FROM (SELECT %(chunk)s::integer AS n) AS chunk
"""


def empty(contender: Contender) -> None:
    """Remove all jobs and what they wait for."""
    contender.start_again()
    contender.connection.execute("TRUNCATE pgqueue_edge, pgqueue_batch, pgqueue_tally")


def members(contender: Contender) -> Figures:
    """Drain the members of a batch, and the job that waits for it."""
    empty(contender)
    with contender.connection.transaction():
        contender.connection.execute("SET LOCAL pgqueue.notify = off")
        (batch,) = contender.connection.execute("SELECT pgqueue_open_batch()").fetchone() or (0,)
        contender.connection.execute(_JOBS, {"jobs": JOBS, "marks": 4, "batch": batch})
        contender.connection.execute(
            "SELECT pgqueue_enqueue('benchmarks.tasks.noop', options => %s)", [json.dumps({"after": [batch]})]
        )
        contender.connection.execute("SELECT pgqueue_close_batch(%s)", [batch])
    return drain(contender, JOBS + 1)


def edges(contender: Contender) -> Figures:
    """Drain jobs, of which each hundred have a job that waits for them."""
    empty(contender)
    with contender.connection.transaction():
        contender.connection.execute("SET LOCAL pgqueue.notify = off")
        contender.connection.execute(_JOBS, {"jobs": JOBS, "marks": 2, "batch": None})
        contender.connection.execute(_CHILDREN, {"fan": FAN})
    return drain(contender, JOBS + JOBS // FAN)


def add(contender: Contender, *, to_batch: bool) -> Figures:
    """Enqueue jobs in one transaction, as members of a batch or not."""
    empty(contender)
    contender.settle()
    began = perf_counter()
    with contender.connection.transaction():
        batch = None
        if to_batch:
            (batch,) = contender.connection.execute("SELECT pgqueue_open_batch()").fetchone() or (0,)
        for _ in range(JOBS // CHUNK):
            contender.connection.execute(_ENQUEUE, {"chunk": CHUNK, "batch": batch})
        if to_batch:
            contender.connection.execute("SELECT pgqueue_close_batch(%s)", [batch])
    return {"ms": (perf_counter() - began) * 1e3}


def fan_in(bench: Bench) -> list[Variant]:
    """Return the variants of the drain."""
    ours = bench.contenders[OURS]
    return [
        Variant(PLAIN, partial(plain, ours, JOBS)),
        Variant(BATCH, partial(members, ours)),
        Variant(EDGES, partial(edges, ours)),
    ]


def adding(bench: Bench) -> list[Variant]:
    """Return the variants of the enqueue."""
    ours = bench.contenders[OURS]
    return [
        Variant(IN_BULK, partial(add, ours, to_batch=False)),
        Variant(ADDED, partial(add, ours, to_batch=True)),
    ]


SCENARIOS = [
    Scenario(
        name="fan-in",
        title=f"{JOBS:,} jobs that others wait for, one worker process",
        about=f"batch: all are members of one batch. edges: a job waits for each {FAN} of them.",
        figure=FIGURE,
        variants=fan_in,
        baseline=PLAIN,
        contestants=(OURS,),
        targets=(Target(FIGURE, 0.7, BATCH, PLAIN), Target(FIGURE, 0.7, EDGES, PLAIN)),
    ),
    Scenario(
        name="members",
        title=f"{JOBS:,} members added to a batch in one transaction",
        about="Compared with the same jobs without a batch.",
        figure="ms",
        variants=adding,
        baseline=IN_BULK,
        lower_is_better=True,
        contestants=(OURS,),
        targets=(Target("ms", 2, ADDED, IN_BULK, at_most=True),),
    ),
]
