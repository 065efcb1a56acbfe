"""Long transactions that hold old snapshots, so that vacuum cannot remove what the queue leaves behind."""

from __future__ import annotations

import time
from contextlib import ExitStack, contextmanager
from functools import partial
from threading import Event, Thread
from typing import TYPE_CHECKING

from psycopg import IsolationLevel

from benchmarks.adverse import FIGURE, PLAIN, drain, insert, number_of_jobs, plain, targets
from benchmarks.contestants import OURS
from benchmarks.scenario import Bench, Scenario, Variant
from benchmarks.server import connect

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.contender import Contender
    from benchmarks.scenario import Figures

__all__ = ["SCENARIOS"]

REPORTS = "three long reports"

#: When each report begins and ends, as parts of the jobs: together they cover the whole run.
PARTS = ((0.0, 0.8), (0.1, 0.9), (0.2, 1.0))

#: With ``--full``: four fifths of this is a minute.
LONG_SECONDS = 75.0


def with_reports(contender: Contender, jobs: int) -> Figures:
    """Drain while the three reports run."""
    contender.start_again()
    insert(contender.connection, jobs)
    return drain(contender, jobs, reports(contender, jobs))


@contextmanager
def reports(contender: Contender, jobs: int) -> Iterator[None]:
    """Run the reports on a thread of their own."""
    over = Event()

    def run() -> None:
        with ExitStack() as stack:
            moments = sorted((at, place) for place, part in enumerate(PARTS) for at in part)
            sessions = [stack.enter_context(connect(contender.url)) for _ in PARTS]
            for session in sessions:
                session.autocommit = False
                session.isolation_level = IsolationLevel.REPEATABLE_READ
            open_ones = set[int]()
            for at, place in moments:
                while contender.marks.count() < at * jobs and not over.is_set():
                    time.sleep(0.005)
                if place in open_ones:
                    sessions[place].commit()
                else:
                    open_ones.add(place)
                    sessions[place].execute("SELECT count(*) FROM pgqueue_stat")  # takes the snapshot

    thread = Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def variants(bench: Bench) -> list[Variant]:
    """Return the variants."""
    ours, jobs = bench.contenders[OURS], number_of_jobs(bench, LONG_SECONDS if bench.full else None)
    return [
        Variant(PLAIN, partial(plain, ours, jobs)),
        Variant(REPORTS, partial(with_reports, ours, jobs)),
    ]


SCENARIOS = [
    Scenario(
        name="analytics",
        title="Three long transactions",
        about="No-op jobs, one worker process. Each transaction (REPEATABLE READ) keeps its snapshot for four"
        " fifths of the run; with --full this is about a minute.",
        figure=FIGURE,
        variants=variants,
        baseline=PLAIN,
        rounds=2,
        contestants=(OURS,),
        targets=targets(REPORTS),
    )
]
