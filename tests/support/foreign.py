"""Workers in other languages: the calls that they send, on any connection."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from .jobs import value
from .sessions import Connection


class ForeignJob(NamedTuple):
    """A row of ``pgqueue_claim``."""

    id: int
    lease: int
    task_path: str
    args: list[Any]
    kwargs: dict[str, Any]
    metadata: dict[str, Any]
    queue_name: str
    priority: int
    attempts: int
    max_attempts: int
    attempts_left: int
    timeout: int | None
    deadline: Any
    crash_count: int
    enqueued_at: Any
    context: dict[str, Any] | None


def register(connection: Connection, *queues: str, host: str = "go-1") -> int:
    """Register a worker, and return its id."""
    return int(value(connection, "SELECT pgqueue_register_worker(%s, %s::text[])", host, list(queues)))


def sql_claim(
    connection: Connection, worker: int, at_most: int = 100, queues: Sequence[str] = ()
) -> list[ForeignJob]:
    """Claim by SQL."""
    query = "SELECT * FROM pgqueue_claim(%s::text[], %s, %s)"
    rows = connection.execute(query, (list(queues), at_most, worker)).fetchall()
    return [ForeignJob._make(row) for row in rows]


def heartbeat(connection: Connection, worker: int) -> tuple[bool, list[int], bool]:
    """Send a heartbeat, and return the answer."""
    row = connection.execute("SELECT * FROM pgqueue_heartbeat(%s)", (worker,)).fetchone()
    assert row is not None
    return row[0], row[1], row[2]


def finish_one(connection: Connection, job: ForeignJob, outcome: str = "done", **more: Any) -> None:
    """Report one outcome."""
    given = "".join(f", {name} => %({name})s" for name in more)
    connection.execute(
        f"CALL pgqueue_finish(%(id)s, %(lease)s, %(outcome)s{given})",
        {"id": job.id, "lease": job.lease, "outcome": outcome, **more},
    )


def unregister(connection: Connection, worker: int) -> bool:
    """Remove the worker."""
    return bool(value(connection, "SELECT pgqueue_unregister_worker(%s)", worker))
