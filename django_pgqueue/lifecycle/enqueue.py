"""Enqueue: turn a call of a task into a row, on the caller's connection and in its transaction.

One job takes one statement, and many jobs take one for each chunk. Nothing is committed here: a rollback
removes the jobs together with the rows that they belong to. Calls are checked before they reach the database
(``backend.validate_task``, ``signatures``, ``payload``). The SQL functions check again what they can, for
users who call them directly.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, TypeVar, cast

from asgiref.sync import sync_to_async
from django.core.exceptions import ImproperlyConfigured
from django.db import NotSupportedError, ProgrammingError, connections, transaction

from .. import conf
from ..compat import DjangoTask, InvalidTask
from ..definition import BoundTask, adopt
from ..exceptions import PayloadError, PgQueueError, WrongBackend
from ..models import Job
from ..payload import encode_arguments, encode_metadata
from ..routing import is_ours
from ..signatures import check_call
from .arrays import number_array, text_array
from .atomic import check_atomic

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from ..definition import AnyTask, Task

P = ParamSpec("P")
R = TypeVar("R")

#: Jobs in one statement of ``enqueue_many``: enough to make the round trip cheap, but not a huge statement.
CHUNK = 2_000
#: Characters of JSON after which a statement takes no more jobs. PostgreSQL refuses messages of 1 GB, and the
#: client holds several copies of a statement while it sends it.
CHUNK_CHARACTERS = 4_000_000

#: The exceptions that the checks of a call raise, besides TypeError and ValueError.
_CHECKED = (PgQueueError, InvalidTask, ImproperlyConfigured)

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
    return enqueue_task(_as_ours(task), args, kwargs)


async def aenqueue(task: AnyTask[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Job:
    """Like ``enqueue()``, for async code. Inside ``transaction.atomic``, call ``enqueue`` with
    ``sync_to_async`` instead.
    """
    return await aenqueue_task(_as_ours(task), args, kwargs)


def enqueue_many(calls: Iterable[BoundTask], /) -> list[int]:
    """Enqueue many calls (``task.bind(...)``), all or none, and return their ids in the same order.

    The iterable may be a generator and may mix tasks, but not databases. Raise the same exceptions as
    ``enqueue()``; the message names the item that caused it (``item 3: ...``), and nothing is inserted.
    """
    prepared = _prepare_all(calls)
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
    call = _prepare(task, _call_options(task), args, kwargs)
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


class _CallOptions(NamedTuple):
    """What all calls of a task with the same options have in common."""

    alias: str
    task_path: str
    metadata: str
    queue_name: str
    priority: int
    run_after: Any  # datetime or None
    delay: float | None  # seconds
    expires_after: float | None  # seconds
    max_attempts: int
    timeout: int | None
    on_lost: str


class _Call(NamedTuple):
    options: _CallOptions
    args: str
    kwargs: str

    @property
    def alias(self) -> str:
        return self.options.alias


def _as_ours(task: Any) -> Task[..., Any]:
    """Return the task that a caller passed as one of ours. Raise ``TypeError`` if it is not a task."""
    if not isinstance(task, DjangoTask):
        hint = " Decorate the function with django_pgqueue.task." if callable(task) else ""
        raise TypeError(f"enqueue() takes a task, not {task!r}.{hint}")
    return adopt(task)


def _call_options(task: Task[..., Any]) -> _CallOptions:
    """Check a task with its options, and fill in the defaults from the settings."""
    backend = task.get_backend()
    if not is_ours(backend):
        raise WrongBackend(
            f"{task.module_path} uses the backend {task.backend!r} ({type(backend).__name__}), which is not "
            "one of django_pgqueue. Call the task's own .enqueue(), or select another backend."
        )
    backend.validate_task(task)
    alias = task.database or backend.home()
    if task.atomic:
        check_atomic(task, alias)
    settings = conf.current()
    metadata = encode_metadata(task.metadata) if task.metadata else "{}"
    if len(metadata.encode()) > settings.max_payload_bytes:
        raise PayloadError(
            f"The metadata of {task.module_path} takes {len(metadata.encode()):,} bytes as JSON, more than "
            f"MAX_PAYLOAD_BYTES ({settings.max_payload_bytes:,}). Store the data and pass its key."
        )
    return _CallOptions(
        alias=alias,
        task_path=task.module_path,
        metadata=metadata,
        queue_name=task.queue_name,
        priority=task.priority,
        run_after=task.run_after,
        delay=task.run_after_delta.total_seconds() if task.run_after_delta is not None else None,
        expires_after=task.expires_after.total_seconds() if task.expires_after is not None else None,
        max_attempts=task.max_attempts or settings.max_attempts,
        timeout=task.timeout or settings.timeout,
        on_lost=task.on_lost,
    )


def _prepare(
    task: Task[..., Any], options: _CallOptions, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> _Call:
    check_call(task, args, kwargs)
    return _Call(options, *encode_arguments(args, kwargs, conf.current().max_payload_bytes))


def _prepare_all(calls: Iterable[BoundTask]) -> Iterator[_Call]:
    """Check the calls one by one and yield them. A task is immutable, so each is checked only once."""
    options_of: dict[int, tuple[Any, _CallOptions]] = {}
    first: _CallOptions | None = None
    place = 0
    try:
        for call in calls:  # a generator may raise here, if its next .bind() fails
            if not isinstance(call, BoundTask):
                raise TypeError(f"enqueue_many() takes calls such as task.bind(1), not {call!r}.")
            known = options_of.get(id(call.task))
            if known is None:
                # The task is stored with its options, so that no other object can get the same id().
                known = options_of[id(call.task)] = (call.task, _call_options(_as_ours(call.task)))
            task, options = known
            first = first or options
            if options.alias != first.alias:
                raise ValueError(
                    f"The database is {options.alias!r}, but the items before use {first.alias!r}. "
                    "Call enqueue_many() once for each database."
                )
            yield _prepare(task, options, call.args, call.kwargs)
            place += 1
    except Exception as error:
        _name_item(error, place)
        raise


def _take_chunk(prepared: Iterator[_Call]) -> tuple[list[_Call], bool]:
    """Return the calls of the next statement, and whether they are the last. No call is read ahead: the one
    that reaches a limit is in the statement.
    """
    chunk: list[_Call] = []
    characters = 0
    for call in prepared:
        chunk.append(call)
        characters += len(call.args) + len(call.kwargs) + len(call.options.metadata)
        if len(chunk) >= CHUNK or characters >= CHUNK_CHARACTERS:
            return chunk, False
    return chunk, True


def _name_item(error: Exception, place: int) -> None:
    """Add to `error` which item of `enqueue_many` caused it."""
    error.add_note(f"in item {place} of enqueue_many()")
    # Any other exception comes from the caller's generator, and its arguments may be more than a message.
    checked = type(error) in (TypeError, ValueError) or isinstance(error, _CHECKED)
    if checked and error.args == (str(error),):
        error.args = (f"item {place}: {error}",)


def _insert(alias: str, first: int, calls: list[_Call]) -> list[int]:
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
