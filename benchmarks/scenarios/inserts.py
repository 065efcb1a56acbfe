"""Jobs that insert one row with the ORM, as many jobs do: what keeping Django's connections is worth."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from benchmarks.contestants import OURS
from benchmarks.scenario import Bench, Scenario, Target, Variant

if TYPE_CHECKING:
    from collections.abc import Mapping

    from benchmarks.contender import Contender
    from benchmarks.scenario import Figures

__all__ = ["SCENARIOS"]

THREADS = 4
#: Connections that CONN_MAX_AGE keeps, without a look at the time since their last use.
KEPT = {"CONN_MAX_AGE": "None", "IDLE_CONNECTION_TIMEOUT": "None"}
#: A connection for each job: what CONN_MAX_AGE = 0 means if the worker does not keep connections.
EACH = {"CONN_MAX_AGE": "0", "IDLE_CONNECTION_TIMEOUT": "None"}
EACH_PACE = 250


def insert(contender: Contender, jobs: float, environment: Mapping[str, str]) -> Figures:
    """Fill the queue, start one worker, and measure from the first insert to the last finish."""
    contender.start_again()
    contender.fill("insert", int(jobs))
    contender.settle()
    with contender.working(threads=THREADS, environment=environment) as workers:
        return {"jobs/s": contender.drain(int(jobs), workers)}


def variants(bench: Bench) -> list[Variant]:
    """Return one variant for each contestant, and two more of ours with other settings."""
    jobs = {
        name: bench.seconds * contender.contestant.insert_pace
        for name, contender in bench.contenders.items()
        if "inserts" in contender.contestant.scenarios
    }
    ours = bench.contenders[OURS]
    return [
        *(Variant(name, partial(insert, bench.contenders[name], jobs[name], {})) for name in jobs),
        Variant("kept", partial(insert, ours, jobs[OURS], KEPT)),
        Variant("each", partial(insert, ours, bench.seconds * EACH_PACE, EACH)),
    ]


SCENARIOS = [
    Scenario(
        name="inserts",
        title="Jobs that insert one row with the ORM, one worker process with 4 threads",
        about="Django's default settings (CONN_MAX_AGE = 0). loops: the same inserts without a queue, in as"
        " many threads. kept: CONN_MAX_AGE = None. each: a connection for each job.",
        figure="jobs/s",
        variants=variants,
        baseline=OURS,
        contestants=("loops",),
        with_peers=True,
        targets=(
            Target("jobs/s", 0.85, OURS, "loops"),
            Target("jobs/s", 0.9, OURS, "kept"),
            Target("jobs/s", 8, OURS, "procrastinate"),
            Target("jobs/s", 8, OURS, "celery"),
        ),
    )
]
