"""What a run has left behind: running jobs, workers, sessions, locks, prepared transactions, processes.

A slot of a concurrency limit is held by the row of a running job, and a job that waits for one is blocked. So
a leaked slot shows as a job that is not over.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.db import connection

from tests.support.sessions import open_raw
from tests.support.waiting import until

from .accounts import Accounts
from .havoc import is_gone

__all__ = ["abandoned", "left_behind"]

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
_PREPARED = "SELECT gid FROM pg_prepared_xacts WHERE database = current_database()"
_WORKERS = "SELECT id, host, pid FROM pgqueue_worker"
_LIVE = "SELECT id, status, worker, limit_key FROM pgqueue_job_live"


def abandoned() -> list[str]:
    """Return the jobs that are running without a worker that is alive on this machine."""
    owned = "SELECT live.id, worker.pid FROM pgqueue_job_live AS live LEFT JOIN pgqueue_worker AS worker"
    rows = _ask(f"{owned} ON worker.id = live.worker WHERE live.status = 'running'")
    return [
        f"job {job} is running without a live owner (process {pid})"
        for job, pid in rows
        if pid is None or is_gone(pid)
    ]


def left_behind(accounts: Accounts) -> list[str]:
    """Return what is left after all commands have ended. The connection of this thread is closed."""
    connection.close()
    return list(_left_behind(accounts))


def _left_behind(accounts: Accounts) -> Iterator[str]:
    for what, query in [("session", _SESSIONS), ("lock", _LOCKS)]:
        try:
            until(lambda query=query: not _ask(query), seconds=PATIENCE)  # type: ignore[misc]
        except AssertionError:
            for row in _ask(query):
                yield f"a {what} was left behind: {row}"
    for what, query in [("prepared transaction", _PREPARED), ("worker", _WORKERS), ("live job", _LIVE)]:
        for row in _ask(query):
            yield f"a {what} was left behind: {row}"
    for pid in sorted({run.pid for run in accounts.runs}):
        if not is_gone(pid):
            yield f"the process {pid}, which ran jobs, was left behind"


def _ask(query: str) -> list[Any]:
    """Ask on a direct connection: each question through a pooler would keep its idle sessions alive."""
    with open_raw() as connection:
        return connection.execute(query).fetchall()
