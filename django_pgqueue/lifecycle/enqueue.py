"""Enqueue: turn a call of a task into a row, on the caller's connection and in its transaction.

One job takes one statement, and many jobs take one for each chunk. Nothing is committed here: a rollback
removes the jobs together with the rows that they belong to. Calls are checked before they reach the database
(``calls``). The SQL functions check again what they can, for users who call them directly.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

from asgiref.sync import sync_to_async
from django.db import NotSupportedError, ProgrammingError, connections, transaction

from ..models import Job
from .arrays import number_array, text_array
from .calls import as_ours, call_options, prepare, prepare_all

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from ..definition import AnyTask, BoundTask, Task
    from .calls import Call

P = ParamSpec("P")
R = TypeVar("R")

#: Jobs in one statement of ``enqueue_many``: enough to make the round trip cheap, but not a huge statement.
CHUNK = 2_000
#: Characters of JSON after which a statement takes no more jobs. PostgreSQL refuses messages of 1 GB, and the
#: client holds several copies of a statement while it sends it.
CHUNK_CHARACTERS = 4_000_000

_ONE = (
    "SELECT id, run_after, expires_at, enqueued_at FROM pgqueue_enqueue_v1("
    "%s, %s::jsonb, %s::jsonb, %s::jsonb, %s, %s::integer, %s::timestamptz, %s::double precision, NULL,"
    " %s::double precision, %s::integer, %s::integer, %s, NULL)"
)
_MANY = (
    "SELECT pgqueue_enqueue_many_v1(%s::integer, %s::text[], %s::jsonb[], %s::jsonb[], %s::jsonb[],"
    " %s::text[], %s::integer[], %s::timestamptz[], %s::double precision[], %s::double precision[],"
    " %s::integer[], %s::integer[], %s::text[], NULL)"
)


def enqueue(task: AnyTask[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Job:
    """Enqueue one call of a task and return its ``Job``.

    This works inside and outside of transactions: workers see the job after the commit, and a rollback
    removes it. Use ``task.using(...)`` to set options for this call.

    Raise ``TypeError`` for something that is not a task of this package and for arguments that the function
    does not take, ``InvalidTask`` for a call that cannot be enqueued, and ``PayloadError`` for arguments that
    cannot be written as JSON or are too large.
    """
    return enqueue_task(as_ours(task), args, kwargs)


async def aenqueue(task: AnyTask[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Job:
    """Like ``enqueue()``, for async code. Inside ``transaction.atomic``, call ``enqueue`` with
    ``sync_to_async`` instead.
    """
    return await aenqueue_task(as_ours(task), args, kwargs)


def enqueue_many(calls: Iterable[BoundTask], /) -> list[int]:
    """Enqueue many calls (``task.bind(...)``), all or none, and return their ids in the same order.

    The iterable may be a generator and may mix tasks, but not databases. Raise the same exceptions as
    ``enqueue()``; the message names the item that caused it (``item 3: ...``), and nothing is inserted.
    """
    prepared = prepare_all(calls)
    chunk, is_last = _take_chunk(prepared)
    if not chunk:
        return []
    alias = chunk[0].alias
    if is_last:
        return _insert(alias, 0, chunk)
    ids: list[int] = []
    with transaction.atomic(using=alias):
        while chunk:
            ids += _insert(alias, len(ids), chunk)
            chunk, _ = _take_chunk(prepared)
    return ids


async def aenqueue_many(calls: Iterable[BoundTask], /) -> list[int]:
    """Like ``enqueue_many()``, for async code."""
    return await sync_to_async(enqueue_many)(calls)


def enqueue_task(task: Task[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Job:
    """Like ``enqueue()`` for a task of this package, with the arguments as a sequence and a mapping, as the
    backend holds them.
    """
    call = prepare(task, call_options(task), args, kwargs)
    options = call.options
    pk, run_after, expires_at, enqueued_at = _execute(
        options.alias,
        _ONE,
        (
            options.task_path, call.args, call.kwargs, options.metadata, options.queue_name, options.priority,
            options.run_after, options.delay, options.expires_after, options.max_attempts, options.timeout,
            options.on_lost,
        ),
    )  # fmt: skip
    job = Job(
        id=pk, shelf=0, status=Job.Status.PENDING, task_path=options.task_path, args=json.loads(call.args),
        kwargs=json.loads(call.kwargs), metadata=json.loads(options.metadata), queue_name=options.queue_name,
        priority=options.priority, run_after=run_after, expires_at=expires_at, enqueued_at=enqueued_at,
        max_attempts=options.max_attempts, timeout=options.timeout, on_lost=options.on_lost, attempts=0,
        forgiven_attempts=0, crash_count=0, lost_in_a_row=0, waiting_reason="", errors=[],
        error_fingerprint="",
    )  # fmt: skip
    job._state.adding = False
    job._state.db = options.alias
    return job


async def aenqueue_task(task: Task[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Job:
    """Run ``enqueue_task`` in the thread that async code uses for its database work."""
    return await sync_to_async(enqueue_task)(task, args, kwargs)


def _take_chunk(prepared: Iterator[Call]) -> tuple[list[Call], bool]:
    """Return the calls of the next statement, and whether they are the last. No call is read ahead: the one
    that reaches a limit is in the statement.
    """
    chunk: list[Call] = []
    characters = 0
    for call in prepared:
        chunk.append(call)
        characters += len(call.args) + len(call.kwargs) + len(call.options.metadata)
        if len(chunk) >= CHUNK or characters >= CHUNK_CHARACTERS:
            return chunk, False
    return chunk, True


def _insert(alias: str, first: int, calls: list[Call]) -> list[int]:
    options = [call.options for call in calls]
    parameters = (
        first,
        text_array([each.task_path for each in options]),
        text_array([call.args for call in calls]),
        text_array([call.kwargs for call in calls]),
        text_array([each.metadata for each in options]),
        text_array([each.queue_name for each in options]),
        number_array([each.priority for each in options]),
        text_array([each.run_after.isoformat() if each.run_after else None for each in options]),
        number_array([each.delay for each in options]),
        number_array([each.expires_after for each in options]),
        number_array([each.max_attempts for each in options]),
        number_array([each.timeout for each in options]),
        text_array([each.on_lost for each in options]),
    )
    (ids,) = _execute(alias, _MANY, parameters)
    return cast("list[int]", ids)


def _execute(alias: str, query: str, parameters: tuple[Any, ...]) -> tuple[Any, ...]:
    """Run the statement and return its only row."""
    connection = connections[alias]
    if connection.vendor != "postgresql":
        raise NotSupportedError(
            f"The database {alias!r} is {connection.display_name}, but jobs are stored in PostgreSQL. Set a "
            "PostgreSQL database with @task(database=...), in the OPTIONS of TASKS, or in a router."
        )
    with connection.cursor() as cursor:
        try:
            cursor.execute(query, parameters)
        except ProgrammingError as error:
            if getattr(error.__cause__, "sqlstate", "") == "42883":  # undefined function
                error.add_note(f"Run: manage.py migrate django_pgqueue --database={alias}")
            raise
        row: tuple[Any, ...] = cursor.fetchone()
    return row
