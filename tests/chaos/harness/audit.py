"""The audit: compare the ledger with the tables of the queue after everything is over, and say what is wrong.

- A job whose transaction was committed is there once and is over. One that was rolled back is not there and
  never ran. If the client lost its connection before the answer, all jobs of the transaction are there, or
  none.
- A job that is done was reported by its last run, and not before that has ended, because the reports of lost
  leases are refused.
- An atomic job has its effect once, if it is done. Another one has it at least once.
- A job that ran again has failed before or has asked for it, or a fault explains it: one that hit its
  process, or the server, before the run was reported. Faults take no attempts from a job, except for an
  atomic one that has lost its transaction too often.
- No job is left running.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise
from typing import Any, NamedTuple

from django.db import connection

from django_pgqueue.worker.executor.outcomes import MOST_GIVEN_BACK
from tests.app.ledger_tasks import ATOMIC, atomic_effect
from tests.support.commands import is_alive
from tests.support.jobs import fetch
from tests.support.sessions import open_raw
from tests.support.waiting import until

from .ledger import CLOCK, COMMITTED, IN_DOUBT, ROLLED_BACK, Accounts, Fault, Run, by_job, explanation, wall

LOST_CONNECTION = frozenset({"OperationalError", "InterfaceError"})
"""What atomic tasks of the ledger raise only because of a fault."""
RUN_AGAIN = frozenset({"Snooze", "Suspended"})
"""What tasks raise to run again later, which takes no attempt."""


class Row(NamedTuple):
    """A job as the queue has it."""

    pk: int
    number: int
    task_path: str
    status: str
    attempts: int
    lease: int | None
    worker: int | None
    crash_count: int
    finished_at: float | None
    """By the clock of the server."""


class Audit:
    """The comparison. `problems` are sentences, and an empty list means that the ledger is balanced."""

    def __init__(self, accounts: Accounts) -> None:
        self.accounts = accounts
        self.rows = _rows()
        self.runs_of = by_job(accounts.runs)
        self.duplicates: list[tuple[Run, Run, str]] = []
        """Runs of a job that ran again because of a fault: the two runs, and the kind of the fault."""
        self.late = 0
        """Runs that came to their end without a report: their lease was lost, or their process was."""
        self._by_number: dict[int, list[Row]] = defaultdict(list)
        for row in self.rows:
            self._by_number[row.number].append(row)
        self.problems = [*self._transactions(), *self._jobs(), *self._repetitions(), *self._effects()]

    def _transactions(self) -> Iterator[str]:
        """Whether the jobs are those that were enqueued."""
        runs = Counter(run.number for run in self.accounts.runs)
        known: set[int] = set()
        for transaction in self.accounts.transactions:
            known.update(transaction.numbers)
            found = [row.pk for number in transaction.numbers for row in self._by_number.get(number, [])]
            if transaction.outcome == COMMITTED and found != transaction.jobs:
                yield f"committed jobs {transaction.jobs} are lost or double: there are {found}"
            elif transaction.outcome == ROLLED_BACK and found:
                yield f"jobs that were rolled back are there: {found}"
            elif transaction.outcome == IN_DOUBT and len(found) not in (0, len(transaction.numbers)):
                yield f"a transaction of {len(transaction.numbers)} jobs has left only {found}"
            if not found and (ran := [number for number in transaction.numbers if runs[number]]):
                yield f"jobs that are not there have run: the numbers {ran} ({transaction.outcome})"
            for number in transaction.numbers:
                for row in self._by_number.get(number, []):
                    if row.status != transaction.expects:
                        yield f"{_named(row)} is {row.status} and should be {transaction.expects}"
        if unknown := self._by_number.keys() - known:
            yield f"nobody has enqueued the numbers {sorted(unknown)}"

    def _jobs(self) -> Iterator[str]:
        """Whether each done job was reported by its last run, and how many attempts were counted."""
        for row in self.rows:
            runs = self.runs_of.get(row.pk, [])
            if row.status == "done":
                if not runs or runs[-1].lease != row.lease or runs[-1].how != "done":
                    yield f"{_named(row)} is done with the lease {row.lease}, but its runs are {runs}"
                elif row.finished_at is not None and wall(runs[-1].ended or 0.0) > row.finished_at + CLOCK:
                    yield f"{_named(row)} was done before its last run ended, by a lost lease: {runs}"
                self.late += sum(run.how == "done" for run in runs[:-1])
            if runs and runs[-1].attempt != row.attempts:
                yield f"{_named(row)} has {row.attempts} attempts, and its last run was {runs[-1]}"

    def _repetitions(self) -> Iterator[str]:
        """Whether each run after the first one is explained."""
        atomic = {row.pk: row for row in self.rows if row.task_path == atomic_effect.module_path}
        for job, runs in self.runs_of.items():
            if runs[0].attempt != 1:
                yield f"the first run of a job was attempt {runs[0].attempt}: {runs[0]}"
            for first, second in pairwise(runs):
                if first.error in RUN_AGAIN and second.attempt == first.attempt:
                    continue
                failed = first.how == "raised" and first.error not in LOST_CONNECTION | RUN_AGAIN
                if failed and second.attempt == first.attempt + 1:
                    continue
                fault = explanation(first, second, self.accounts.faults)
                if fault is None:
                    yield f"a job ran again for no reason:\n    {first}\n    {second}"
                elif second.attempt != first.attempt and not (
                    job in atomic and (_counts(runs, first) or _is_isolated(atomic[job], fault))
                ):
                    yield f"a fault ({fault.kind}) took an attempt:\n    {first}\n    {second}"
                else:
                    self.duplicates.append((first, second, fault.kind))

    def _effects(self) -> Iterator[str]:
        """Whether the effects that are committed with their jobs are there exactly once."""
        notes = fetch("SELECT note::bigint FROM app_entry WHERE key = %s", ATOMIC)
        effects = Counter(number for (number,) in notes)
        effects.subtract(
            row.number
            for row in self.rows
            if row.task_path == atomic_effect.module_path and row.status == "done"
        )
        for number, surplus in sorted(effects.items()):
            if surplus:
                yield f"the atomic effects of number {number}: {surplus:+}"


def _is_isolated(row: Row, fault: Fault) -> bool:
    """Return whether the job has crashed before, so that a connection which everybody has lost takes an
    attempt: nobody remembers how many such a job was given back.
    """
    return row.crash_count > 0 and fault.pids is None


def _counts(runs: list[Run], last: Run) -> bool:
    """Return whether this process has given so many attempts back to the job that this one counts."""
    given = [
        one
        for one, other in pairwise(runs)
        if one.pid == last.pid and one.claimed < last.claimed and one.attempt == other.attempt
    ]
    return len(given) >= MOST_GIVEN_BACK


def _rows() -> list[Row]:
    found = fetch(
        "SELECT id, (args ->> 0)::bigint, task_path, status, attempts, lease, worker, crash_count,"
        " extract(epoch FROM finished_at)::float8 FROM pgqueue_job"
        " WHERE task_path LIKE 'tests.app.ledger_tasks.%' ORDER BY id"
    )
    return [Row(*columns) for columns in found]


def _named(row: Row) -> str:
    return f"job {row.pk} (number {row.number}, {row.task_path.rpartition('.')[2]})"


PATIENCE = 10.0
"""Seconds in which the server may notice that a client is gone."""

_SESSIONS = (
    "SELECT pid, application_name, state, query FROM pg_stat_activity"
    " WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
)
_LOCKS = (
    "SELECT locktype, mode, pid, virtualtransaction FROM pg_locks WHERE pid IS DISTINCT FROM pg_backend_pid()"
    " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    " AND pid <> ALL (SELECT pid FROM pg_stat_activity WHERE backend_type = 'autovacuum worker')"
)
_LEFT = {
    "session": _SESSIONS,
    "lock": _LOCKS,
    "prepared transaction": "SELECT gid FROM pg_prepared_xacts WHERE database = current_database()",
    "worker": "SELECT id, host, pid FROM pgqueue_worker",
    "live job": "SELECT id, status, worker, limit_key FROM pgqueue_job_live",
}


def abandoned() -> list[str]:
    """Return the jobs that are running without a worker that is alive on this machine."""
    owned = "SELECT live.id, worker.pid FROM pgqueue_job_live AS live LEFT JOIN pgqueue_worker AS worker"
    rows = _ask(f"{owned} ON worker.id = live.worker WHERE live.status = 'running'")
    return [
        f"job {job} is running without a live owner (process {pid})"
        for job, pid in rows
        if pid is None or not is_alive(pid)
    ]


def left_behind(accounts: Accounts) -> list[str]:
    """Return what is left after all commands have ended. The connection of this thread is closed."""
    connection.close()
    for query in (_SESSIONS, _LOCKS):
        with suppress(AssertionError):
            until(lambda query=query: not _ask(query), seconds=PATIENCE)  # type: ignore[misc]
    processes = sorted({run.pid for run in accounts.runs if is_alive(run.pid)})
    return [
        *(f"a {what} was left behind: {row}" for what, query in _LEFT.items() for row in _ask(query)),
        *(f"the process {pid}, which ran jobs, was left behind" for pid in processes),
    ]


def _ask(query: str) -> list[Any]:
    """Ask on a direct connection: each question through a pooler would keep its idle sessions alive."""
    with open_raw() as connection:
        return connection.execute(query).fetchall()
