"""A ledger outside the queue, which records each run of a task and each kill of a process.

Each run writes one line when it begins and one when it ends. Each line is a single write to a file that is
open for appending, so lines of different processes do not mix, and a line stays when its process is killed.
All times come from the machine's monotonic clock, except for that of the claim, which is the server's.
"""

from __future__ import annotations

import json
import os
import time
from asyncio import CancelledError
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path

from django_pgqueue import current_job

__all__ = ["FILE", "Kill", "Run", "by_job", "certain_crashes", "read", "recorded", "unexplained"]

FILE = "LEDGER_FILE"
"""The environment variable with the path of the ledger."""

REPORT = 10.0  # maximum seconds from the end of a run to its report, on a busy machine


@dataclass(slots=True)
class Run:
    """One run of a task. `ended` is None if it was cut off. `parent` is the parent of its process, `pid`.
    `claimed` is the time of the claim, as the server has stamped it.
    """

    began: float
    number: int
    job: int
    attempt: int
    lease: int
    worker: int
    pid: int
    parent: int
    claimed: float
    ended: float | None = None


@dataclass(frozen=True, slots=True)
class Kill:
    """A SIGKILL for a process between `before` and `after`. `pids` are this process and those that died with
    it.
    """

    before: float
    after: float
    pids: frozenset[int]
    is_supervisor: bool

    def hit(self, run: Run) -> bool:
        """Return whether the kill hit the run: it was running, or it was over and maybe not reported yet."""
        return (
            not self.pids.isdisjoint((run.pid, run.parent))
            and run.began <= self.after
            and (run.ended is None or self.before <= run.ended + REPORT)
        )


@contextmanager
def recorded(number: int) -> Iterator[None]:
    """Record that the running job has begun, and, unless it fails, that it has ended.

    An async job that is asked to stop ends as well. Without a record it would count as running until the next
    kill of its process.
    """
    job = current_job()
    assert job.last_attempted_at is not None
    claimed = job.last_attempted_at.timestamp()
    numbers = (number, job.pk, job.attempts, job.lease, job.worker, os.getpid(), os.getppid(), claimed)
    _write("begin", numbers)
    try:
        yield
    except CancelledError:
        _write("end", numbers)
        raise
    _write("end", numbers)


def read(path: Path) -> list[Run]:
    """Return all runs, ordered by the time when they began."""
    runs: list[Run] = []
    latest: dict[tuple[float, ...], Run] = {}
    for line in path.read_text().splitlines():
        word, at, *numbers = json.loads(line)
        if word == "begin":
            runs.append(Run(at, *numbers))
            latest[tuple(numbers)] = runs[-1]
        else:
            latest[tuple(numbers)].ended = at
    return sorted(runs, key=lambda run: run.began)


def unexplained(runs: Iterable[Run], kills: Sequence[Kill]) -> list[tuple[Run, Run]]:
    """Return pairs of runs of a job whose second run is not explained by a kill before the first report."""
    return [
        (first, second)
        for job in by_job(runs).values()
        for first, second in pairwise(job)
        if not any(kill.hit(first) and kill.before <= second.began for kill in kills)
    ]


def certain_crashes(runs: Iterable[Run], kills: Sequence[Kill]) -> int:
    """Return how many of these runs must have counted a crash: a kill cut them off, and their supervisor saw
    it.

    If the supervisor is killed as well, what it did not write with its last heartbeat is lost.
    """
    return sum(run.ended is None and _was_seen(run, kills) for run in runs)


def _was_seen(run: Run, kills: Sequence[Kill]) -> bool:
    hits = [kill for kill in kills if kill.hit(run)]
    own = next((kill for kill in hits if run.pid in kill.pids), None)
    return own is not None and not any(
        kill.is_supervisor and kill.before <= own.after + REPORT for kill in hits
    )


def by_job(runs: Iterable[Run]) -> dict[int, list[Run]]:
    """Return the runs of each job."""
    jobs = defaultdict(list)
    for run in runs:
        jobs[run.job].append(run)
    return jobs


def _write(word: str, numbers: tuple[object, ...]) -> None:
    os.write(_open(os.environ[FILE]), json.dumps([word, time.monotonic(), *numbers]).encode() + b"\n")


@cache
def _open(path: str) -> int:
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
