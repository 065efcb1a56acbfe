"""Ten minutes at half load: whether anything grows or slows down with time."""

from __future__ import annotations

import statistics
import time
from functools import partial
from typing import TYPE_CHECKING

from benchmarks.contender import StuckError
from benchmarks.contestants import OURS
from benchmarks.load import Load, percentiles
from benchmarks.processes import megabytes, supervisor_and_process
from benchmarks.scenario import Bench, Scenario, Target, Variant

from .drain import drain

if TYPE_CHECKING:
    from benchmarks.contender import Contender, Workers
    from benchmarks.scenario import Figures

__all__ = ["SCENARIOS"]

PARTS = 10
LENGTH = 150  # times the seconds of one run: ten minutes by default
NAMES = [f"part {number} of {PARTS}" for number in range(1, PARTS + 1)]
WARM_UP = 1_000

_TABLE = """
    SELECT pg_total_relation_size('pgqueue_job_live') / 2.0 ^ 20, n_dead_tup
    FROM pg_stat_user_tables WHERE relname = 'pgqueue_job_live'
"""


class Steady:
    """All parts are measured in one run, when the first of them is asked for."""

    def __init__(self, contender: Contender, seconds: float) -> None:
        self._contender = contender
        self._drain_seconds = seconds
        self._seconds = LENGTH * seconds
        self._parts: list[Figures] = []

    def part(self, number: int) -> Figures:
        """Return the figures of one part."""
        if number == 0:
            self._parts = []
            self._parts = self._run()
        if not self._parts:
            raise StuckError("the run did not come to its end")
        return self._parts[number]

    def _run(self) -> list[Figures]:
        ours = self._contender
        rate = drain(ours, 1, self._drain_seconds)["jobs/s"]
        ours.start_again()
        ours.settle()
        try:
            with ours.working() as workers, Load(ours, rate / 2, self._seconds) as load:
                ours.fill("noop", WARM_UP)
                workers.wait_for(WARM_UP)
                load.begin()
                began = time.monotonic()
                parts = [self._watch(workers, began + self._end(part)) for part in range(PARTS)]
                fed = load.end()
                workers.wait_for(WARM_UP + fed.jobs)
                waits = load.waits(fed)
        finally:
            ours.start_again()  # the history of millions of jobs takes gigabytes
        for number, figures in enumerate(parts):
            start, end = began + self._end(number - 1), began + self._end(number)
            figures.update(percentiles([wait for at, wait in waits if start <= at < end]))
        return parts

    def _end(self, part: int) -> float:
        return self._seconds * (part + 1) / PARTS

    def _watch(self, workers: Workers, end: float) -> Figures:
        """Look at everything once a second until this time."""
        ours = self._contender
        supervisor, process = supervisor_and_process(workers)
        began, ran, waited = time.monotonic(), ours.marks.count(), ours.unfinished()
        sizes, dead = [], []
        while (left := end - time.monotonic()) > 0:
            time.sleep(min(1.0, left))
            workers.check()
            row = ours.connection.execute(_TABLE).fetchone()
            assert row is not None
            sizes.append(float(row[0]))
            dead.append(float(row[1]))
        seconds, jobs, waiting = time.monotonic() - began, ours.marks.count() - ran, ours.unfinished()
        return {
            "jobs/s": jobs / seconds,
            # If this is less than half of the drain, the machine did not let the enqueuers work in time.
            "enqueued/s": (jobs + waiting - waited) / seconds,
            "unfinished": waiting,
            "MB of live jobs": statistics.median(sizes),
            "MB of live jobs at most": max(sizes),
            "dead rows": statistics.median(dead),
            "dead rows at most": max(dead),
            "MB of the process": megabytes(process),
            "MB of the supervisor": megabytes(supervisor),
        }


def variants(bench: Bench) -> list[Variant]:
    """Return one variant for each part of the same run."""
    (ours,) = bench.among(OURS)
    run = Steady(ours, bench.seconds)
    return [Variant(name, partial(run.part, number)) for number, name in enumerate(NAMES)]


SCENARIOS = [
    Scenario(
        name="steady",
        title="Ten minutes at half of the drain's rate, one worker process",
        about="Each part is a minute, or 15 times --seconds. The percentiles are from the commit of a single"
        " job to its start. The table of live jobs includes its indexes.",
        figure="jobs/s",
        variants=variants,
        baseline=NAMES[0],
        rounds=1,
        only_full=True,
        contestants=(OURS,),
        targets=(Target("jobs/s", 0.9, NAMES[-1], NAMES[0]),),
    )
]
