"""The transitions of a job as single statements on any connection, as the worker sends them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from django.db import connections
from psycopg.rows import namedtuple_row

from django_pgqueue.jobs.claim import Answer, Claimed, claim_sql, split_answer
from django_pgqueue.jobs.finish import Outcome, finish_statement

from .sessions import Connection

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


def fetch(query: str, *parameters: Any, using: str = "default") -> list[Any]:
    """Execute any statement on a connection of Django. Return its rows."""
    with connections[using].cursor() as cursor:
        cursor.execute(query, parameters or None)
        return cursor.fetchall() if cursor.description else []


def sql(query: str, *parameters: Any, using: str = "default") -> Any:
    """The same, and return the first column of the first row."""
    return next((row[0] for row in fetch(query, *parameters, using=using)), None)


def next_id() -> int:
    """Take the next id of a job."""
    return int(sql("SELECT nextval('pgqueue_job_id_seq')"))


def add(connection: Connection, count: int = 1, **options: Any) -> list[int]:
    """Enqueue with the function for plain SQL. `options` are its parameters."""
    given = {"task_path": "tests.app.tasks.noop", **options}
    arguments = ", ".join(f"{name} => %({name})s" for name in given)
    query = f"SELECT pgqueue_enqueue({arguments}) FROM generate_series(1, {count})"
    return [row[0] for row in connection.execute(query, given).fetchall()]


def add_in_one(
    connection: Connection,
    options: Sequence[Mapping[str, Any]],
    batch: int | None = None,
    path: str = "a.b",
    returned: str = "ids",
) -> list[Any]:
    """Enqueue one job for each of the options in one statement. Return the ids, or the outcomes."""
    filled = {"task_paths": f"'{path}'::text", "args": "'[]'::jsonb", "kwargs": "'{}'::jsonb",
              "metadata": "'{}'::jsonb", "queue_names": "'default'::text", "priorities": "0"}  # fmt: skip
    given = ", ".join(
        f"p_{name} => array_fill({each}, ARRAY[{len(options)}])" for name, each in filled.items()
    )
    query = (
        f"SELECT {returned} FROM _pgqueue_enqueue_many(0, {given}, p_run_after => NULL, p_delays => NULL,"
        " p_expires_after => NULL, p_max_attempts => NULL, p_timeouts => NULL, p_on_lost => NULL,"
        " p_max_bytes => NULL, p_options => %s::jsonb[], p_batch => %s)"
    )
    texts = [json.dumps(each) if each else None for each in options]
    return list(value(connection, query, texts if any(texts) else None, batch))


def claim(connection: Connection, limit: int = 100, **how: Any) -> list[Claimed]:
    """Claim as a worker does. Return the rows, ordered by id. `how` is as in ``claim_and_tell()``."""
    return claim_and_ask(connection, limit, **how)[0]


def running(connection: Connection, count: int = 1, *, worker: int = 1, lease: int = 1) -> list[int]:
    """Return jobs that a worker has claimed, committed."""
    add(connection, count)
    jobs = [row.id for row in claim(connection, count, worker=worker, lease=lease)]
    connection.commit()
    return jobs


def claim_and_ask(
    connection: Connection, limit: int = 100, **how: Any
) -> tuple[list[Claimed], tuple[int, int]]:
    """Like ``claim()``, and return how many jobs the gate has moved and left behind."""
    rows, refusals, *_ = claim_and_tell(connection, limit, **how)
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
    quotas: Mapping[str | None, int] | None = None,
) -> Answer:
    """Claim, and return all that the claim tells.

    `limits` are those of queues, `first` are the jobs to take before others, and `quotas` say how many jobs
    of each group to take, with a range for each; None are the jobs without a group.
    """
    query = statement or claim_sql(limited=limits is not None, grouped=quotas is not None)
    parameters = {
        **claim_parameters(*ranges, limit=limit), "worker": worker, "lease": lease, "first": list(first),
        "limited_queues": list(limits or ()), "limits": list((limits or {}).values()),
        "groups": list(quotas or ()), "quotas": list((quotas or {}).values()),
    }  # fmt: skip
    return split_answer(connection.execute(query, parameters).fetchall())


def claim_parameters(*ranges: Range, limit: int = 50) -> dict[str, Any]:
    """Return the parameters of ``claim_sql()``."""
    queues, priorities, marks, mark_ids = (list(column) for column in zip(*ranges, strict=True))
    return {
        "queues": queues, "priorities": priorities, "marks": marks, "mark_ids": mark_ids, "limit": limit,
        "worker": 1, "lease": 1, "first": [],
    }  # fmt: skip


def claim_groups(
    connection: Connection,
    quotas: Mapping[str | None, int],
    limit: int = 100,
    queue: str = "default",
    **how: Any,
) -> list[Claimed]:
    """Claim from groups of one queue."""
    ranges = [Range(queue)] * len(quotas)
    return claim_and_tell(connection, limit, ranges=ranges, quotas=quotas, **how).rows


def finish(
    connection: Connection, jobs: Sequence[int], kind: Any = "done", *, lease: int = 1, **more: Any
) -> list[int]:
    """Report one outcome for several jobs. Return the ids that were accepted."""
    outcomes = [Outcome(job, lease, kind, **more) for job in jobs]
    statement, parameters = finish_statement(outcomes)
    accepted = value(connection, statement, *parameters)
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
    query = f"SELECT cardinality(pgqueue_edit(%(jobs)s, {given}))"
    return sum(row[0] for row in connection.execute(query, {"jobs": list(jobs), **values}))


def rotate(connection: Connection) -> str:
    """Run one round of maintenance for the ring."""
    return str(value(connection, "SELECT _pgqueue_rotate()"))


def statuses(connection: Connection) -> dict[int, str]:
    """Return the status of each job, on all shelves."""
    return dict(connection.execute("SELECT id, status FROM pgqueue_job").fetchall())


def live(connection: Connection) -> dict[int, str]:
    """Return the status of each job that is not over."""
    return dict(connection.execute("SELECT id, status FROM pgqueue_job_live").fetchall())


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


# --- Workers in other languages: the calls that they send


def register(connection: Connection, *queues: str, host: str = "go-1") -> int:
    """Register a worker, and return its id."""
    return int(value(connection, "SELECT pgqueue_register_worker(%s, %s::text[])", host, list(queues)))


def sql_claim(
    connection: Connection, worker: int, at_most: int = 100, queues: Sequence[str] = ()
) -> list[Any]:
    """Claim by SQL. Return the rows, whose attributes are the columns."""
    query = "SELECT * FROM pgqueue_claim(%s::text[], %s, %s)"
    with connection.cursor(row_factory=namedtuple_row) as cursor:
        return cursor.execute(query, (list(queues), at_most, worker)).fetchall()


def heartbeat(connection: Connection, worker: int) -> tuple[bool, list[int], bool]:
    """Send a heartbeat, and return the answer."""
    row = connection.execute("SELECT * FROM pgqueue_heartbeat(%s)", (worker,)).fetchone()
    assert row is not None
    return row[0], row[1], row[2]


def finish_one(connection: Connection, job: Any, outcome: str = "done", **more: Any) -> None:
    """Report one outcome."""
    given = "".join(f", {name} => %({name})s" for name in more)
    connection.execute(
        f"CALL pgqueue_finish(%(id)s, %(lease)s, %(outcome)s{given})",
        {"id": job.id, "lease": job.lease, "outcome": outcome, **more},
    )


def unregister(connection: Connection, worker: int) -> bool:
    """Remove the worker."""
    return bool(value(connection, "SELECT pgqueue_unregister_worker(%s)", worker))


# --- Jobs that wait for jobs and batches


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
