"""Jobs that insert one row with the ORM, as many jobs do: what keeping Django's connections is worth."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from benchmarks.contestants import OURS
from benchmarks.scenario import Bench, Scenario, Target, Variant

if TYPE_CHECKING:
    from collections.abc import Mapping

    from benchmarks.contender import Contender
    from benchmarks.scenario import Figures

__all__ = ["SCENARIOS"]

THREADS = 4
#: A connection for each job: what CONN_MAX_AGE = 0 means if the worker does not keep connections.
EACH = {"CONN_MAX_AGE": "0", "IDLE_CONNECTION_TIMEOUT": "None"}
EACH_PACE = 250


#: What a server with a fast disk or a managed one with a cache costs: a commit that does not wait.
FAST = {"PGOPTIONS": "-c synchronous_commit=off"}


def insert(contender: Contender, jobs: float, environment: Mapping[str, str], processes: int = 1) -> Figures:
    """Fill the queue, start the workers, and measure from the first insert to the last finish."""
    contender.start_again()
    contender.fill("insert", int(jobs))
    contender.settle()
    with contender.working(processes, THREADS // processes, environment=environment) as workers:
        return {"jobs/s": contender.drain(int(jobs), workers)}


def configured(contender: Contender, jobs: float) -> Figures:
    """The same with the contestant's own configuration."""
    contender.start_again()
    contender.fill("insert", int(jobs))
    contender.settle()
    with contender.working(kind="insert") as workers:
        return {"jobs/s": contender.drain_by_all(int(jobs), workers)}


def variants_of_contestants(bench: Bench) -> list[Variant]:
    """Return one variant for each contestant, and ours with a connection for each job."""
    return [
        *(
            Variant(name, partial(configured, contender, jobs_of(contender, bench)))
            for name, contender in bench.contenders.items()
            if "inserts" in contender.contestant.scenarios
        ),
        Variant("each", partial(insert, bench.contenders[OURS], bench.seconds * EACH_PACE, EACH)),
    ]


def variants(processes: int, environment: Mapping[str, str], bench: Bench) -> list[Variant]:
    """Return one variant for each contestant."""
    return [
        Variant(name, partial(insert, contender, jobs_of(contender, bench), environment, processes))
        for name, contender in bench.contenders.items()
        if "inserts" in contender.contestant.scenarios
    ]


def jobs_of(contender: Contender, bench: Bench) -> float:
    """Return how many jobs one run takes."""
    return bench.seconds * contender.contestant.insert_pace


def scenario(name: str, title: str, about: str, share: float, **options: Any) -> Scenario:
    """Return a scenario with a target: the share of what loops insert."""
    return Scenario(
        name=name,
        title=title,
        about=f"loops: the same inserts without a queue, in as many threads and processes. {about}",
        figure="jobs/s",
        baseline=OURS,
        contestants=("loops",),
        targets=(Target("jobs/s", share, OURS, "loops"), *options.pop("targets", ())),
        **options,
    )


SCENARIOS = [
    scenario(
        "inserts",
        "Jobs that insert one row, with the ORM if the queue is one for Django",
        "Defaults: CONN_MAX_AGE = 0. each: django_pgqueue with a connection for each job.",
        0.9,
        variants=variants_of_contestants,
        with_peers=True,
        targets=(
            Target("jobs/s", 8, OURS, "procrastinate"),
            Target("jobs/s", 8, OURS, "celery"),
        ),
    ),
    scenario(
        "inserts-fast",
        "Jobs that insert one row with the ORM, where a commit does not wait for the disk",
        "synchronous_commit = off, as if the disk were fast.",
        0.8,
        variants=partial(variants, 1, FAST),
    ),
    scenario(
        "inserts-2",
        "Jobs that insert one row with the ORM, two worker processes with 2 threads each",
        "Durable commits.",
        0.95,
        variants=partial(variants, 2, {}),
    ),
]
