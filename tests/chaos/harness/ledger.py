"""The ledger: what happened, in files outside the queue and its server.

Each process appends to a file of its own, and each record is on disk before the process continues. So a
record survives a kill of its process, a crash of the server, a full disk of the server and a failover, and it
is there before what it announces: an enqueue that is missing in the ledger was never tried.

All times come from the machine's monotonic clock, except for that of a claim, which is the server's.
"""

from __future__ import annotations

import json
import os
import time
from asyncio import CancelledError
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from django_pgqueue import current_job

FOLDER = "LEDGER_FOLDER"
"""The environment variable with the folder of the ledger, for the tasks."""

BEGIN, END, FAULT = "begin", "end", "fault"
INTEND, COMMITTED, ROLLED_BACK, IN_DOUBT = "intend", "committed", "rolled back", "in doubt"


class Ledger:
    """The folder of a ledger, to which each process and thread may write."""

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)

    def write(self, word: str, **values: Any) -> None:
        """Append a record and wait until it is on disk.

        It is a single write to a file that is open for appending, so records of several threads do not mix.
        """
        file = _open(str(self.folder / f"{os.getpid()}.jsonl"))
        line = json.dumps({"word": word, "at": time.monotonic(), **values})
        os.write(file, line.encode() + b"\n")
        os.fdatasync(file)

    def write_fault(self, fault: Fault) -> None:
        """Record a fault that is over, or that comes soon."""
        pids = None if fault.pids is None else sorted(fault.pids)
        self.write(FAULT, **asdict(fault) | {"pids": pids})


@contextmanager
def recorded(number: int) -> Iterator[None]:
    """Record that the running job has begun, and how it has ended.

    A job that is asked to stop ends as well. Without a record it would count as cut off.
    """
    job = current_job()
    assert job.last_attempted_at is not None
    ledger = Ledger(os.environ[FOLDER])
    run = {"lease": job.lease, "job": job.pk, "pid": os.getpid()}
    ledger.write(
        BEGIN, **run, number=number, attempt=job.attempts, worker=job.worker, parent=os.getppid(),
        claimed=job.last_attempted_at.timestamp(),
    )  # fmt: skip
    try:
        yield
    except CancelledError:
        ledger.write(END, **run, how="stopped")
        raise
    except BaseException as error:
        ledger.write(END, **run, how="raised", error=type(error).__name__)
        raise
    ledger.write(END, **run, how="done")


def about_to_die(kind: str, within: float = 5.0) -> None:
    """Record a fault that the running task is about to make in its own process, which then ends soon."""
    now = time.monotonic()
    Ledger(os.environ[FOLDER]).write_fault(Fault(kind, now, now + within, frozenset({os.getpid()})))


def first_time(number: int) -> bool:
    """Return whether this job has not asked before, in any of its runs."""
    try:
        (Path(os.environ[FOLDER]) / f"asked-{number}").touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


@cache
def _open(path: str) -> int:
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)


# --- Read a ledger: the transactions that enqueued jobs, the runs of jobs, and the faults; count its losses


REPORT = 10.0
"""Maximum seconds from the end of a run to its report, on a busy machine."""
CLOCK = 0.05
"""Seconds by which two clocks of a machine may differ after a conversion."""


def wall(moment: float) -> float:
    """Return a time of the monotonic clock as one of the wall clock, by which the server stamps its rows."""
    return moment + time.time() - time.monotonic()


@dataclass(slots=True)
class Run:
    """One run of a task. `ended` is None if it was cut off. `parent` is the parent of its process, `pid`."""

    began: float
    number: int
    job: int
    attempt: int
    lease: int
    worker: int
    pid: int
    parent: int
    claimed: float
    """The time of the claim as the server has stamped it."""
    ended: float | None = None
    how: str = ""
    """How it ended: "done", "raised" or "stopped"."""
    error: str = ""

    @property
    def claimed_at(self) -> float:
        """The time of the claim by the monotonic clock, if the server is on this machine."""
        return self.claimed - wall(0.0)


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault between `before` and `after`. It hit the processes `pids`, or everybody if that is None."""

    kind: str
    before: float
    after: float
    pids: frozenset[int] | None = None
    is_supervisor: bool = False
    explains: bool = True
    """Whether jobs that it hit may run again. A fault that must not be noticed explains nothing."""

    def hit(self, run: Run) -> bool:
        """Return whether it hit the run: it was running, or claimed, or over and maybe not reported yet."""
        return (
            (self.pids is None or not self.pids.isdisjoint((run.pid, run.parent)))
            and min(run.began, run.claimed_at - CLOCK) <= self.after
            and (run.ended is None or self.before <= run.ended + REPORT)
        )

    def explains_again(self, first: Run, second: Run) -> bool:
        """Return whether the second run of a job may be due to this fault."""
        return self.explains and self.hit(first) and self.before <= second.began


@dataclass(slots=True)
class Transaction:
    """A transaction that should enqueue jobs: their numbers, what became of it, and the ids of the jobs."""

    numbers: list[int]
    expects: str
    """The status in which its jobs should end."""
    outcome: str = IN_DOUBT
    """The transaction is in doubt if the connection, or the process, was lost before the server's answer."""
    jobs: list[int] = field(default_factory=list)
    answered: float | None = None
    """When the client knew the outcome, also that it is in doubt."""


@dataclass(frozen=True, slots=True)
class Accounts:
    """Everything that a ledger says."""

    transactions: list[Transaction]
    runs: list[Run]
    """Ordered by the time when they began."""
    faults: list[Fault]


class Reader:
    """Reads a ledger again and again, each time only what is new."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[Path, int] = {}
        self._transactions: dict[tuple[Path, int], Transaction] = {}
        self._runs: dict[tuple[Path, int, int, int], Run] = {}
        self._faults: list[Fault] = []

    def read(self) -> Accounts:
        """Return everything that all processes have written so far."""
        for path in sorted(self._folder.glob("*.jsonl")):
            for record in self._new_records(path):
                self._note(path, record)
        return Accounts(
            list(self._transactions.values()),
            sorted(self._runs.values(), key=lambda run: run.began),
            sorted(self._faults, key=lambda fault: fault.before),
        )

    def _new_records(self, path: Path) -> Iterator[dict[str, Any]]:
        """Yield the complete records: the last one may be being written."""
        with path.open("rb") as file:
            file.seek(self._read.get(path, 0))
            for line in file:
                if line.endswith(b"\n"):
                    self._read[path] = self._read.get(path, 0) + len(line)
                    yield json.loads(line)

    def _note(self, path: Path, record: dict[str, Any]) -> None:
        word, at = record.pop("word"), record.pop("at")
        if word == BEGIN:
            self._runs[path, record["lease"], record["job"], record["pid"]] = Run(began=at, **record)
        elif word == END:
            run = self._runs[path, record["lease"], record["job"], record["pid"]]
            run.ended, run.how, run.error = at, record["how"], record.get("error", "")
        elif word == FAULT:
            pids = record.pop("pids")
            self._faults.append(Fault(**record, pids=None if pids is None else frozenset(pids)))
        elif word == INTEND:
            self._transactions[path, record["transaction"]] = Transaction(
                record["numbers"], record["expects"]
            )
        else:
            transaction = self._transactions[path, record["transaction"]]
            transaction.outcome, transaction.jobs = word, record.get("jobs", [])
            transaction.answered = at


def read(folder: Path) -> Accounts:
    """Read a ledger once."""
    return Reader(folder).read()


def by_job(runs: Iterable[Run]) -> dict[int, list[Run]]:
    """Return the runs of each job, in the order of their claims.

    A process that is stopped between its claim and its first statement begins later than its successor.
    """
    jobs: dict[int, list[Run]] = defaultdict(list)
    for run in sorted(runs, key=lambda run: run.claimed):
        jobs[run.job].append(run)
    return jobs


def explanation(first: Run, second: Run, faults: Sequence[Fault]) -> Fault | None:
    """Return the fault that explains why the job ran again, or None."""
    return next((fault for fault in faults if fault.explains_again(first, second)), None)


# --- What a failover has cost: ``dev.py failover``


def losses(
    accounts: Accounts, statuses: Mapping[int, str], atomic: set[int], effects: Iterable[int]
) -> dict[str, int]:
    """Compare a ledger with the tables: the status of each job and the effects of the atomic ones.

    Jobs are counted by their numbers: a lost job's id may be given again.
    """
    numbers: dict[str, set[int]] = defaultdict(set)
    for transaction in accounts.transactions:
        numbers[transaction.outcome].update(transaction.numbers)
    ended = Counter(run.number for run in accounts.runs if run.how == "done")
    done = {number for number in atomic if statuses.get(number) == "done"}
    found = Counter(effects)
    return {
        "confirmed": len(numbers[COMMITTED]),
        "lost": len(numbers[COMMITTED] - statuses.keys()),
        # Their effects outside the database remain.
        "not there but have run": len(ended.keys() - statuses.keys()),
        "in doubt": len(numbers[IN_DOUBT]),
        "in doubt and there": len(numbers[IN_DOUBT] & statuses.keys()),
        "ended twice": sum(count > 1 for count in ended.values()),
        "atomic effects missing": len(done - found.keys()),
        # Those beyond the first, and those of jobs that are not done.
        "atomic effects repeated": sum(count - (number in done) for number, count in found.items()),
        "left": sum(status not in {"done", "failed", "cancelled"} for status in statuses.values()),
    }


def longest_gap(moments: Iterable[float], since: float, until: float) -> float:
    """Return the longest time in the span in which nothing happened."""
    inside = sorted(moment for moment in moments if since < moment < until)
    return max(second - first for first, second in pairwise([since, *inside, until]))
