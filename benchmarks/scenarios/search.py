"""What the index of arguments costs: the enqueue, the way to the finish, and the bytes of a finished job.

The jobs have one argument, a number of their own. They are enqueued with ``enqueue_many`` and drained by one
worker process.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from benchmarks.adverse import FIGURE, drain, number_of_jobs
from benchmarks.contestants import OURS
from benchmarks.scenario import Bench, Scenario, Target, Variant

if TYPE_CHECKING:
    from benchmarks.contender import Contender
    from benchmarks.scenario import Figures

__all__ = ["SCENARIOS"]

KINDS = {"without": "order", "with search": "searched_order"}
_BYTES = """
    SELECT sum(pg_total_relation_size(leaf.inhrelid)) FROM pg_inherits AS leaf
    WHERE leaf.inhparent = 'pgqueue_job'::regclass AND leaf.inhrelid <> 'pgqueue_job_live'::regclass
"""
_FIND = "SELECT count(*) FROM pgqueue_job WHERE searched @> ARRAY['number=17']"


def measure(contender: Contender, kind: str, jobs: int) -> Figures:
    """Enqueue the jobs, run them, and measure the history."""
    contender.start_again()
    enqueued = jobs / contender.fill(kind, jobs)
    figures = drain(contender, jobs)
    size, found = (contender.connection.execute(query).fetchone() or (0,) for query in (_BYTES, _FIND))
    if (found[0] == 1) != (kind == KINDS["with search"]):
        raise RuntimeError(f"{found[0]} jobs were found by their number")
    return {**figures, "enqueued/s": enqueued, "bytes/job": float(size[0]) / jobs}


def variants(bench: Bench) -> list[Variant]:
    """Return the variants."""
    ours, jobs = bench.contenders[OURS], number_of_jobs(bench)
    return [Variant(name, partial(measure, ours, kind, jobs)) for name, kind in KINDS.items()]


SCENARIOS = [
    Scenario(
        name="search",
        title="The index of arguments",
        about="No-op jobs with one number each, one worker process. bytes/job: of a finished job.",
        figure=FIGURE,
        variants=variants,
        baseline="without",
        rounds=3,
        contestants=(OURS,),
        targets=(Target(FIGURE, 0.6, "with search", "without"),),
    )
]
