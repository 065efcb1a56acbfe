"""A drain while a session holds an old snapshot: vacuum must keep every row that the queue deletes."""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from benchmarks.against_plain import TARGETS, against_plain, jobs_for
from benchmarks.contestants import OURS
from benchmarks.scenario import Bench, Scenario, Variant
from benchmarks.server import connect

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.contender import Contender
    from benchmarks.scenario import Figures

__all__ = ["SCENARIOS"]


def snapshot(contender: Contender, jobs: int) -> Figures:
    """Drain without a snapshot, then with one."""
    return against_plain(contender, contender, jobs, held_snapshot(contender.url))


@contextmanager
def held_snapshot(url: str) -> Iterator[None]:
    """Hold a snapshot, as a long report or a backup does."""
    with connect(url) as connection:
        connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        connection.execute("SELECT 1")  # takes the snapshot
        yield
        connection.execute("COMMIT")


def variants(bench: Bench) -> list[Variant]:
    """Return the only variant."""
    (ours,) = bench.among(OURS)
    return [Variant(OURS, partial(snapshot, ours, jobs_for(ours, bench)))]


SCENARIOS = [
    Scenario(
        name="snapshot",
        title="No-op jobs while a session holds a snapshot from before the run, one worker process",
        about="Dead rows pile up. Compared with the same queue without that session in the same round.",
        figure="jobs/s",
        variants=variants,
        baseline=OURS,
        rounds=2,
        contestants=(OURS,),
        targets=TARGETS,
    )
]
