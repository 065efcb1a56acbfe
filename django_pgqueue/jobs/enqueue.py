"""Enqueue: turn a call of a task into a row, on the caller's connection and in its transaction.

One job takes one statement, and many jobs take one for each chunk. Nothing is committed here: a rollback
removes the jobs together with the rows that they belong to. Calls are checked before they reach the database
(``calls``). The SQL functions check again what they can, for users who call them directly.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from datetime import datetime
from itertools import chain
from typing import Any, ParamSpec, Self, TypeVar, overload

from asgiref.sync import sync_to_async
from django.conf import settings
from django.core.exceptions import SynchronousOnlyOperation
from django.db import IntegrityError, OperationalError, ProgrammingError, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.utils import NotSupportedError

from ..compat import InvalidTask, for_async, is_heard, task_enqueued
from ..context import capture, current_tenant
from ..exceptions import BatchFinished, JobExists, ParentGone
from ..formatting import get_logger
from ..models import Job
from ..models.job import enqueued_job
from ..postgres import sql_of
from ..postgres.arrays import number_array, text_array
from ..tasks.call import Call, after_hooks, as_ours, call_options, prepare, prepare_all
from ..tasks.shards import placed
from ..tasks.task import AnyTask, BoundTask, Task
from ..tasks.unique import EnqueueOutcome
from ..telemetry import tracing
from .payloads import store_calls, store_one

logger = get_logger(__name__)

P = ParamSpec("P")
R = TypeVar("R")
#: Jobs in one statement of ``enqueue_many``: enough to make the round trip cheap, but not a huge statement.
CHUNK = 2_000
#: Characters of JSON after which a statement takes no more jobs. PostgreSQL refuses messages of 1 GB, and the
#: client holds several copies of a statement while it sends it.
CHUNK_CHARACTERS = 4_000_000
_ONE = sql_of(__file__, "enqueue")
_MANY = sql_of(__file__, "enqueue_many")

#: How ``_MANY`` takes the columns of ``Call.row()``.
_ARRAYS: tuple[Callable[[Iterable[Any]], str], ...] = (
    *[text_array] * 5,
    number_array,
    text_array,
    *[number_array] * 4,
    text_array,
)


def enqueue(task: AnyTask[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Job:
    """Enqueue one call of a task and return its ``Job``: ``enqueue(task, 1)`` or ``enqueue(task.bind(1))``.

    This works inside and outside of transactions. Workers see the job after the commit, and a rollback
    removes it. Use ``task.using(...)`` to set options for this call.

    Raise ``TypeError`` for something that is not a task of this package and for arguments that the function
    does not take, ``InvalidTask`` for a call that cannot be enqueued, and ``InvalidJSON`` for arguments that
    cannot be written as JSON or are too large.

    If the task is unique, and another job has the key of this call, return that job as it is in the database.
    ``job.enqueue_outcome`` is "created", "existing" or "replaced". It joins the ``batch`` of this call. Raise
    ``JobExists`` if ``on_conflict`` is "raise", if it is in another batch, or if it does not wait for the
    jobs that this call runs ``after``. Raise ``InvalidKey`` if the key cannot be determined, and
    ``OperationalError`` if an open transaction has the key, and does not end within the ``lock_timeout`` of
    the session (10 seconds if it has none).

    A receiver of ``task_enqueued`` gets the signal for a new job, in the transaction of the caller.
    """
    given: Any = task
    if not isinstance(given, BoundTask):
        given = BoundTask(given, args, kwargs)
    elif args or kwargs:
        raise TypeError("enqueue(call) takes nothing else, because the call has its arguments: task.bind(1).")
    call = after_hooks(given)
    ours = as_ours(call.task)
    job = enqueue_task(ours, call.args, call.kwargs)
    if is_heard(task_enqueued) and job.enqueue_outcome == "created":
        _announce(ours, job)
    return job


async def aenqueue(task: AnyTask[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Job:
    """Like ``enqueue()``, for async code. In ``transaction.atomic``, use ``sync_to_async(enqueue)``."""
    return await sync_to_async(enqueue)(task, *args, **kwargs)


def enqueue_many(calls: Iterable[BoundTask], /) -> JobList:
    """Enqueue many calls (``task.bind(...)``), all or none, and return their jobs in the same order.

    The iterable may be a generator and may mix tasks, but not databases. Raise the same exceptions as
    ``enqueue()``; the message names the item that caused it (``item 3: ...``), and nothing is inserted.

    ``jobs.ids`` are the ids, and ``jobs.enqueue_outcomes`` the outcomes (see ``enqueue()``). For a call whose
    unique key is taken, by another job or by an earlier item, it is that job.
    """
    heard: list[Call] = []
    with tracing.sending(None, None) as span:
        prepared = prepare_all(calls, capture(), current_tenant())
        if is_heard(task_enqueued):
            heard = list(prepared)
            prepared = iter(heard)
        first = next(prepared, None)
        if first is None:
            return JobList(None, [])
        options, prepared = first.options, chain([first], prepared)
        if options.keeper is None:
            jobs = JobList(options.alias, write_all(prepared))
        else:
            jobs = options.keeper.many(prepared)
        if span is not None:
            span.stored(None, "", len(jobs))
    if heard:
        _announce_all(heard, jobs)
    return jobs


aenqueue_many = for_async(enqueue_many)


def enqueue_task(task: Task[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Job:
    """``enqueue()`` for the backend, with args and kwargs. Hooks have seen the call; nothing is announced."""
    options = call_options(placed(task, args, kwargs))
    with tracing.sending(task.queue_name, options.task_path) as span:
        call = prepare(options, args, kwargs, capture(), current_tenant())
        job = write(call) if options.keeper is None else options.keeper.one(call)
        if span is not None:
            span.stored(job.pk, job.enqueue_outcome or "")
    return job


def write(call: Call) -> Job:
    """Insert the job of a call that was checked, with its payload if it has one, and return it."""
    options, alias = call.options, call.options.alias
    with nullcontext() if call.payload is None else transaction.atomic(using=alias):
        pk, *times, outcome = _execute(
            alias, _ONE, (*call.row(), call.more(with_context=True, with_tenant=False), call.tenant)
        )
        if outcome == "created" and options.links is None:
            job = new_job(call, pk, *times)
            job._state.adding = False
            job._state.db = alias
        else:  # its parents decide whether it waits
            call.check_outcome(outcome, pk)
            job = enqueued_job(alias, pk, outcome)
        if call.payload is not None:
            store_one(alias, call.payload, pk, outcome)
    return job


def write_all(prepared: Iterator[Call]) -> list[tuple[int, EnqueueOutcome]]:
    """Insert the jobs of calls that are checked one by one, all or none. Return their ids and outcomes."""
    numbered: Iterator[tuple[int, Call]] = enumerate(prepared)
    chunk, is_last = _take_chunk(numbered)
    if not chunk:
        return []
    alias = chunk[0][1].options.alias
    if is_last and not any(call.needs_transaction for _, call in chunk):
        return _insert(alias, chunk)
    done: list[tuple[int, tuple[int, EnqueueOutcome]]] = []
    in_key_order = False
    with transaction.atomic(using=alias):
        while chunk:
            if not (is_last or in_key_order) and any(call.unique_key for _, call in chunk):
                # Race: another one takes the same keys. A statement inserts in the order of the keys, so that
                # they never wait for each other, so the statements of one transaction must be in that order,
                # for which all calls must be known.
                rest = sorted([*chunk, *numbered], key=lambda item: item[1].unique_key or "")
                numbered, in_key_order = iter(rest), True
            else:
                done += zip([place for place, _ in chunk], _insert(alias, chunk), strict=True)
            chunk, is_last = _take_chunk(numbered)
    return [answer for _, answer in sorted(done)]


def _take_chunk(numbered: Iterator[tuple[int, Call]]) -> tuple[list[tuple[int, Call]], bool]:
    """Return the calls of the next statement, and whether they are the last. No call is read ahead."""
    chunk: list[tuple[int, Call]] = []
    characters = 0
    for place, call in numbered:
        chunk.append((place, call))
        characters += len(call.args) + len(call.kwargs) + len(call.options.metadata)
        if len(chunk) >= CHUNK or characters >= CHUNK_CHARACTERS:
            return chunk, False
    return chunk, True


def _insert(alias: str, numbered: list[tuple[int, Call]]) -> list[tuple[int, EnqueueOutcome]]:
    """Insert calls in one statement. They have the places that they have among all items."""
    calls = [call for _, call in numbered]
    batches = {(call.options.links or {}).get("batch") for call in calls if calls[0].options.links}
    batch = batches.pop() if len(batches) == 1 else None  # one to which all belong is sent once
    # The tenant of all is sent once, too: in the options of each, it would take as long as the insert.
    tenants = {call.tenant for call in calls}
    more = [call.more(in_shared_batch=batch is not None, with_tenant=len(tenants) > 1) for call in calls]
    columns = zip(*[call.row() for call in calls], strict=True)
    parameters = (
        numbered[0][0],
        *[to_array(column) for to_array, column in zip(_ARRAYS, columns, strict=True)],
        None if more.count(None) == len(more) else text_array(more),
        calls[0].context,
        batch,
        tenants.pop() if len(tenants) == 1 else None,
    )
    ids, outcomes = _execute(alias, _MANY, parameters)
    done = list(zip(ids, outcomes or ["created"] * len(ids), strict=True))
    if outcomes is not None:
        for (place, call), (job_id, outcome) in zip(numbered, done, strict=True):
            call.check_outcome(outcome, job_id, f"item {place}: ")
    store_calls(alias, calls, done)
    return done


def _execute(alias: str, query: str, parameters: tuple[Any, ...]) -> tuple[Any, ...]:
    """Run the statement and return its only row."""
    connection = connections[alias]
    if connection.vendor != "postgresql":
        raise NotSupportedError(
            f"The database {alias!r} is {connection.display_name}, but jobs are stored in PostgreSQL. Set a "
            "PostgreSQL database with @task(database=...), in the OPTIONS of TASKS, or in a router."
        )
    warn_of_other_transaction(connection)
    try:
        with connection.cursor() as cursor:
            cursor.execute(query, parameters)
            row: tuple[Any, ...] = cursor.fetchone()
    except MISTAKES as error:
        raise explained(error, alias) from error.__cause__
    return row


# The signal ``task_enqueued``. Its receivers get a result with the whole row, which a bulk has to read; so it
# is sent only if there is a receiver besides that of Django, which logs.

#: The rows of a bulk that are read at once.
_ANNOUNCED = 1_000


def _announce_all(calls: list[Call], jobs: JobList) -> None:
    options = calls[0].options
    new = [pair for pair in zip(calls, jobs, strict=True) if pair[1].enqueue_outcome == "created"]
    for start in range(0, len(new), _ANNOUNCED):
        some = new[start : start + _ANNOUNCED]
        rows: dict[int, Job] = {}
        if options.keeper is None:
            rows = Job.objects.using(options.alias).in_bulk([job.pk for _, job in some])
        for call, job in some:
            _announce(call.options.task, rows.get(job.pk, job))


def _announce(task: Task[..., Any], job: Job) -> None:
    backend: Any = task.get_backend()
    backend.announce(task, job)


def new_job(call: Call, pk: int, run_after: datetime, expires_at: datetime | None, now: datetime) -> Job:
    """Return the job that a call has made, without reading it. None of its parents has finished."""
    options, task, policy = call.options, call.options.task, call.options.policy
    links = options.links or {}
    waits = "after" in links
    limit_key, unique_key = call.limit_key, call.unique_key
    if call.tenant is not None:  # as _pgqueue_of_tenant() stores them
        name, _, key = (limit_key or "").partition("/")
        limit_key = limit_key and f"{name}/{call.tenant}:{key}"
        unique_key = unique_key and f"{call.tenant}:{unique_key}"
    job = Job(
        id=pk, shelf=0, status=Job.Status.BLOCKED if waits else Job.Status.PENDING,
        task_path=options.task_path, args=json.loads(call.args),
        kwargs=json.loads(call.kwargs), metadata=json.loads(options.metadata), queue_name=task.queue_name,
        priority=task.priority, run_after=run_after, expires_at=expires_at, enqueued_at=now,
        max_attempts=policy.max_attempts, timeout=policy.timeout, on_lost=policy.on_lost, attempts=0,
        forgiven_attempts=0, crash_count=0, lost_in_a_row=0, marks=0, current_step="",
        waiting_reason="", errors=[], error_fingerprint="",
        limit_key=limit_key, group_key=call.group_key, tenant=call.tenant,
        wait_position=pk if call.limit_key is not None and run_after <= now else None,
        unique_key=unique_key,
        unique_scope=task.unique.scope if task.unique is not None else None,
        context=None if call.context is None else json.loads(call.context),
        batch_id=links.get("batch"), parent_ids=links.get("after"),
    )  # fmt: skip
    job.enqueue_outcome = "created"
    return job


class JobList(Sequence[Job]):
    """The jobs of ``enqueue_many()`` and ``Batch.add()``, in the order of the calls.

    Nothing has been read. An item has its ``id`` and its ``enqueue_outcome``, and reads its row when another
    field is used. In async code, write ``await job.arefresh_from_db()`` first.
    """

    __slots__ = ("_alias", "_jobs", "enqueue_outcomes", "ids")

    def __init__(
        self, alias: str | None, done: Iterable[tuple[int, EnqueueOutcome]], jobs: Iterable[Job] = ()
    ) -> None:
        pairs = list(done)
        self._alias = alias
        self._jobs = dict(enumerate(jobs))
        self.ids: list[int] = [job_id for job_id, _ in pairs]
        """The id of the job of each call."""
        self.enqueue_outcomes: list[EnqueueOutcome] = [outcome for _, outcome in pairs]
        """For each call "created", "existing" or "replaced"; see ``enqueue()``."""

    def __len__(self) -> int:
        return len(self.ids)

    @overload
    def __getitem__(self, place: int) -> Job: ...

    @overload
    def __getitem__(self, place: slice) -> Self: ...

    def __getitem__(self, place: int | slice) -> Job | Self:
        places = range(len(self.ids))[place]
        if isinstance(places, int):
            return self._job(places)
        return type(self)(
            self._alias,
            [(self.ids[each], self.enqueue_outcomes[each]) for each in places],
            [self._job(each) for each in places],
        )

    def __repr__(self) -> str:
        shown = ", ".join(map(str, self.ids[:10]))
        return f"<JobList of {len(self)}: {shown}{', ...' if len(self) > 10 else ''}>"

    def _job(self, place: int) -> Job:
        job = self._jobs.get(place)
        if job is None:
            job = self._jobs[place] = Job.from_db(self._alias, ["id"], [self.ids[place]])
            job.enqueue_outcome = self.enqueue_outcomes[place]
        return job


_said: set[tuple[str, str]] = set()
MISTAKES = (ProgrammingError, IntegrityError, OperationalError, SynchronousOnlyOperation)
#: What the functions in ``sql/`` raise with codes of their own.
_REFUSALS: dict[str, type[Exception]] = {"23Q05": BatchFinished, "23Q06": ParentGone, "23Q07": InvalidTask}
_TWIN = re.compile(r"job (\d+) has")  # in the message of _pgqueue_linked


def explained(error: Exception, alias: str) -> Exception:
    """Return what to raise instead of one of the ``MISTAKES``: if the migrations have not run, or if async
    code calls a function for sync code, or if another transaction has kept the unique key for too long, an
    error of the same type that says what to do; if the database refuses the call, the exception of this
    package for that.
    """
    if isinstance(error, SynchronousOnlyOperation):
        return SynchronousOnlyOperation(
            "A job cannot be enqueued like this in async code. Write await aenqueue(...), or call the "
            "function that uses transaction.atomic() with sync_to_async."
        )
    code = getattr(error.__cause__, "sqlstate", "")
    if code in _REFUSALS:
        return _REFUSALS[code](_message(error))
    if code == "23505" and _diagnosis(error, "constraint_name") == "pgqueue_job_unique":
        message = _message(error)
        return JobExists(message[0].upper() + message[1:], int(_TWIN.findall(message)[0]))
    if code == "42883":  # undefined function
        return ProgrammingError(
            f"The database {alias!r} has no functions of this version of django_pgqueue. "
            f"Run: manage.py migrate django_pgqueue --database={alias}"
        )
    if code == "55P03" and "_pgqueue_insert_unique" in (_diagnosis(error, "context") or ""):
        return OperationalError(
            "The unique key of a call belongs to another transaction that is still open. It did not end "
            "within the lock_timeout of this session (10 seconds if it has none). Call again later. Keep "
            "transactions short that enqueue unique jobs, or enqueue after them, with "
            "transaction.on_commit()."
        )
    return error


def _message(error: Exception) -> str:
    """Return what a function said, and how to mend it, without the place in its code."""
    first, *more = (
        (_diagnosis(error, name) or "").rstrip(".")
        for name in ("message_primary", "message_detail", "message_hint")
    )
    return ". ".join(filter(None, [first.removeprefix("pgqueue: "), *more])) + "."


def _diagnosis(error: Exception, name: str) -> str | None:
    return getattr(getattr(error.__cause__, "diag", None), name, None)


def warn_of_other_transaction(connection: BaseDatabaseWrapper) -> None:
    """Log once that a transaction is open in another database only. Only with DEBUG, as it takes 8 µs."""
    if not settings.DEBUG or connection.in_atomic_block or len(connections.settings) == 1:
        return
    for other in connections.all(initialized_only=True):
        if other.in_atomic_block and (connection.alias, other.alias) not in _said:
            _said.add((connection.alias, other.alias))
            logger.warning(
                "a job was enqueued in the database %r at once: the open transaction is in the database %r, "
                "and neither a rollback nor a commit there affects the job",
                connection.alias, other.alias,
            )  # fmt: skip
