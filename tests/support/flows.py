"""Jobs that wait for jobs and batches, as single statements on any connection."""

from __future__ import annotations

import json
from typing import Any

from .jobs import add, value
from .sessions import Connection


def after(connection: Connection, parents: list[int], if_failed: str | None = None, **options: Any) -> int:
    """Enqueue a job after others. `options` are those of the enqueue."""
    more = {"after": parents, **({} if if_failed is None else {"if_failed": if_failed}), **options}
    (child,) = add(connection, options=json.dumps(more))
    return child


def members(connection: Connection, batch: int, count: int = 1, **options: Any) -> list[int]:
    """Enqueue jobs as members of a batch."""
    return add(connection, count, options=json.dumps({"batch": batch, **options}))


def open_batch(connection: Connection, count: int = 0, *, is_open: bool = False) -> tuple[int, list[int]]:
    """Return a batch with members, and close it."""
    batch: int = value(connection, "SELECT pgqueue_open_batch()")
    jobs = members(connection, batch, count)
    if not is_open:
        close(connection, batch)
    return batch, jobs


def close(connection: Connection, batch: int) -> bool:
    """Close a batch."""
    return bool(value(connection, "SELECT pgqueue_close_batch(%s)", batch))


def outcome(connection: Connection, batch: int) -> str:
    """Return how the batch has ended; empty: it has not."""
    return str(value(connection, "SELECT outcome FROM pgqueue_batch WHERE id = %s", batch))


def counts(connection: Connection, batch: int) -> tuple[int, ...]:
    """Return how many members were added, live, are done, have failed, and were cancelled."""
    row = connection.execute("SELECT * FROM pgqueue_batch_counts(%s)", (batch,)).fetchone()
    assert row is not None
    return tuple(int(number) for number in row)


def edges(connection: Connection) -> list[tuple[int, int]]:
    """Return the parent and the child of each edge."""
    return connection.execute("SELECT parent_id, child_id FROM pgqueue_edge ORDER BY 1, 2").fetchall()


def reason(connection: Connection, job: int) -> str:
    """Return why a job waits, or why it was cancelled."""
    return str(value(connection, "SELECT waiting_reason FROM pgqueue_job WHERE id = %s", job))


def batch_call(connection: Connection, name: str, batch: int) -> int:
    """Cancel or retry a batch."""
    return int(value(connection, f"SELECT pgqueue_{name}_batch(%s)", batch))


def attach(connection: Connection) -> None:
    """Do what the commit does with edges, without the commit."""
    connection.execute("SET CONSTRAINTS pgqueue_attach IMMEDIATE")
    connection.execute("SET CONSTRAINTS pgqueue_attach DEFERRED")


def maintenance(connection: Connection) -> tuple[int, int]:
    """Do a round of maintenance. Return how many batches and edges it has settled."""
    ended = value(connection, "SELECT ended FROM _pgqueue_repair_batches(0, 100000)")
    settled = value(connection, "SELECT settled FROM _pgqueue_repair_edges(0, 100000)")
    return int(ended), int(settled)


def status(connection: Connection, *jobs: int) -> str:
    """Return the statuses of jobs, separated by spaces."""
    found = dict(connection.execute("SELECT id, status FROM pgqueue_job WHERE id = ANY (%s)", (list(jobs),)))
    return " ".join(found.get(job, "gone") for job in jobs)
