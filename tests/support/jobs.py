"""The transitions of a job as single statements on any connection, as the worker sends them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from django.db import connection as django

from django_pgqueue.jobs.claim import Answer, Claimed, claim_sql, split_answer
from django_pgqueue.jobs.finish import FINISH_SQL, Outcome, finish_parameters

from .sessions import Connection

__all__ = [
    "LONG_AGO",
    "add",
    "cancel",
    "claim",
    "claim_and_ask",
    "claim_and_tell",
    "claim_groups",
    "edit",
    "finish",
    "live",
    "next_id",
    "over",
    "retry",
    "rotate",
    "running",
    "sql",
    "statuses",
    "value",
]

LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)


class Range(NamedTuple):
    """A range that a claim reads."""

    queue_name: str = "default"
    priority: int = 0
    mark: datetime = LONG_AGO
    mark_id: int = 0


def value(connection: Connection, query: str, *parameters: Any) -> Any:
    """Return the first column of the first row."""
    row = connection.execute(query, parameters or None).fetchone()
    return None if row is None else row[0]


def sql(query: str, *parameters: Any) -> Any:
    """The same on the connection of Django, for any statement."""
    with django.cursor() as cursor:
        cursor.execute(query, parameters or None)
        row = cursor.fetchone() if cursor.description else None
    return row and row[0]


def next_id() -> int:
    """Take the next id of a job."""
    return int(sql("SELECT nextval('pgqueue_job_id_seq')"))


def add(connection: Connection, count: int = 1, **options: Any) -> list[int]:
    """Enqueue with the function for plain SQL. `options` are its parameters."""
    given = {"task_path": "tests.app.tasks.noop", **options}
    arguments = ", ".join(f"{name} => %({name})s" for name in given)
    query = f"SELECT pgqueue_enqueue({arguments}) FROM generate_series(1, {count})"
    return [row[0] for row in connection.execute(query, given).fetchall()]


def claim(
    connection: Connection,
    limit: int = 100,
    *,
    worker: int = 1,
    lease: int = 1,
    ranges: Sequence[Range] = (Range(),),
    statement: str = "",
) -> list[Claimed]:
    """Claim as a worker does. Return the rows, ordered by id."""
    return claim_and_ask(connection, limit, worker=worker, lease=lease, ranges=ranges, statement=statement)[0]


def running(connection: Connection, count: int = 1, *, worker: int = 1, lease: int = 1) -> list[int]:
    """Return jobs that a worker has claimed, committed."""
    add(connection, count)
    jobs = [row.id for row in claim(connection, count, worker=worker, lease=lease)]
    connection.commit()
    return jobs


def claim_and_ask(
    connection: Connection,
    limit: int = 100,
    *,
    worker: int = 1,
    lease: int = 1,
    ranges: Sequence[Range] = (Range(),),
    statement: str = "",
    limits: Mapping[str, int] | None = None,
) -> tuple[list[Claimed], tuple[int, int]]:
    """Like ``claim()``, and return how many jobs the gate has moved and left behind. `limits` are those of
    queues."""
    rows, refusals, *_ = claim_and_tell(
        connection, limit, worker=worker, lease=lease, ranges=ranges, statement=statement, limits=limits
    )
    return sorted(rows), (refusals.moved, refusals.left_behind)


def claim_and_tell(
    connection: Connection,
    limit: int = 100,
    *,
    worker: int = 1,
    lease: int = 1,
    ranges: Sequence[Range] = (Range(),),
    statement: str = "",
    limits: Mapping[str, int] | None = None,
    first: Sequence[int] = (),
) -> Answer:
    """Like ``claim()``, and return all that it tells. `first` are the jobs to take before others."""
    queues, priorities, marks, mark_ids = (list(column) for column in zip(*ranges, strict=True))
    cursor = connection.execute(
        statement or claim_sql(limited=limits is not None),
        {
            "queues": queues, "priorities": priorities, "marks": marks, "mark_ids": mark_ids, "limit": limit,
            "worker": worker, "lease": lease, "first": list(first), "limited_queues": list(limits or ()),
            "limits": list((limits or {}).values()),
        },
    )  # fmt: skip
    return split_answer(cursor.fetchall())


def claim_groups(
    connection: Connection,
    quotas: Mapping[str | None, int],
    limit: int = 100,
    *,
    lease: int = 1,
    queue: str = "default",
    limits: Mapping[str, int] | None = None,
) -> list[Claimed]:
    """Claim from groups of one queue. `quotas`: how many jobs of each; None are the jobs without a group."""
    count = len(quotas)
    cursor = connection.execute(
        claim_sql(limited=limits is not None, grouped=True),
        {
            "queues": [queue] * count, "priorities": [0] * count, "marks": [LONG_AGO] * count,
            "mark_ids": [0] * count, "groups": list(quotas), "quotas": list(quotas.values()), "limit": limit,
            "worker": 1, "lease": lease, "first": [], "limited_queues": list(limits or ()),
            "limits": list((limits or {}).values()),
        },
    )  # fmt: skip
    return split_answer(cursor.fetchall()).rows


def finish(
    connection: Connection, jobs: Sequence[int], kind: Any = "done", *, lease: int = 1, **more: Any
) -> list[int]:
    """Report one outcome for several jobs. Return the ids that were accepted."""
    outcomes = [Outcome(job, lease, kind, **more) for job in jobs]
    accepted = value(connection, FINISH_SQL, *finish_parameters(outcomes, 20))
    return sorted(accepted)


def cancel(connection: Connection, jobs: Sequence[int]) -> int:
    """Run the statement of ``cancel()``."""
    return len(value(connection, "SELECT pgqueue_cancel(%s::bigint[])", list(jobs)))


def retry(connection: Connection, jobs: Sequence[int]) -> int:
    """Run the statement of ``retry(done=True)``."""
    return len(value(connection, "SELECT pgqueue_retry(%s::bigint[], true)", list(jobs)))


def edit(connection: Connection, jobs: Sequence[int], **values: Any) -> int:
    """Edit with the function for plain SQL. ``values`` are its parameters."""
    given = ", ".join(f"{name} => %({name})s" for name in values)
    row = connection.execute(
        f"SELECT cardinality(pgqueue_edit(%(jobs)s, {given}))", {"jobs": list(jobs), **values}
    ).fetchone()
    assert row is not None
    return int(row[0])


def rotate(connection: Connection) -> str:
    """Run one round of maintenance for the ring."""
    return str(value(connection, "SELECT _pgqueue_rotate()"))


def statuses(connection: Connection) -> dict[int, str]:
    """Return the status of each job, on all shelves."""
    return {row[0]: row[1] for row in connection.execute("SELECT id, status FROM pgqueue_job").fetchall()}


def live(connection: Connection) -> dict[int, str]:
    """Return the status of each job that is not over."""
    return {
        row[0]: row[1] for row in connection.execute("SELECT id, status FROM pgqueue_job_live").fetchall()
    }


def over(
    connection: Connection,
    shelf: int,
    age: str,
    count: int = 1,
    *,
    status: str = "done",
    queue_name: str = "default",
) -> list[int]:
    """Insert jobs into history that finished an `age` (an interval) ago. Return their ids."""
    rows = connection.execute(
        "INSERT INTO pgqueue_job (shelf, status, task_path, queue_name, finished_at)"
        " SELECT %s, %s, 'tests.app.tasks.noop', %s, clock_timestamp() - %s::interval"
        " FROM generate_series(1, %s) RETURNING id",
        (shelf, status, queue_name, age, count),
    )
    return [row[0] for row in rows.fetchall()]
