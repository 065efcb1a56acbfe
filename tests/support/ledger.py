"""A ledger outside the queue: each run of a task writes itself down, and so does whoever kills a process.

One line for a beginning and one for an end, each by a single write to a file that is open for appending: so
lines of many processes do not mix, and what a process wrote stays when it is killed. All times are of the
machine's monotonic clock.
"""

from __future__ import annotations

import json
import os
import time
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
"""The environment variable that says where the ledger is."""

REPORT = 10.0  # seconds from the end of a run to its report, at most, on a busy machine


@dataclass(slots=True)
class Run:
    """One run of a task; `ended` is None if it was cut off. `parent`: of its process, `pid`."""

    began: float
    number: int
    job: int
    attempt: int
    lease: int
    worker: int
    pid: int
    parent: int
    ended: float | None = None


@dataclass(frozen=True, slots=True)
class Kill:
    """SIGKILL for a process, at a time between `before` and `after`; `pids` is it and what died with it."""

    before: float
    after: float
    pids: frozenset[int]
    is_supervisor: bool

    def hit(self, run: Run) -> bool:
        """Whether the run was at work then, or over and maybe not reported yet."""
        return (
            not self.pids.isdisjoint((run.pid, run.parent))
            and run.began <= self.after
            and (run.ended is None or self.before <= run.ended + REPORT)
        )


@contextmanager
def recorded(number: int) -> Iterator[None]:
    """Write down that the running job has begun, and, unless it raises, that it has ended."""
    job = current_job()
    numbers = (number, job.pk, job.attempts, job.lease, job.worker, os.getpid(), os.getppid())
    _write("begin", numbers)
    yield
    _write("end", numbers)


def read(path: Path) -> list[Run]:
    """All runs, in the order of their beginnings."""
    runs: list[Run] = []
    latest: dict[tuple[int, ...], Run] = {}
    for line in path.read_text().splitlines():
        word, at, *numbers = json.loads(line)
        if word == "begin":
            runs.append(Run(at, *numbers))
            latest[tuple(numbers)] = runs[-1]
        else:
            latest[tuple(numbers)].ended = at
    return sorted(runs, key=lambda run: run.began)


def unexplained(runs: Iterable[Run], kills: Sequence[Kill]) -> list[tuple[Run, Run]]:
    """Second runs of a job although nobody had killed the process of the first one before its report."""
    return [
        (first, second)
        for job in by_job(runs).values()
        for first, second in pairwise(job)
        if not any(kill.hit(first) and kill.before <= second.began for kill in kills)
    ]


def certain_crashes(runs: Iterable[Run], kills: Sequence[Kill]) -> int:
    """How many of these runs must have counted a crash: a kill cut them off, and their supervisor saw it.

    A supervisor that is killed, too, takes along what it knows but has not said at its last heartbeat.
    """
    return sum(run.ended is None and _was_seen(run, kills) for run in runs)


def _was_seen(run: Run, kills: Sequence[Kill]) -> bool:
    hits = [kill for kill in kills if kill.hit(run)]
    own = next((kill for kill in hits if run.pid in kill.pids), None)
    return own is not None and not any(
        kill.is_supervisor and kill.before <= own.after + REPORT for kill in hits
    )


def by_job(runs: Iterable[Run]) -> dict[int, list[Run]]:
    """The runs of each job."""
    jobs = defaultdict(list)
    for run in runs:
        jobs[run.job].append(run)
    return jobs


def _write(word: str, numbers: tuple[object, ...]) -> None:
    os.write(_open(os.environ[FILE]), json.dumps([word, time.monotonic(), *numbers]).encode() + b"\n")


@cache
def _open(path: str) -> int:
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
