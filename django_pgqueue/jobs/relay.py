"""The relay: calls that are committed in one database, and become jobs in another one.

``task.using(relay="s1")`` makes the enqueue write a job of ``hand_over`` in the transaction of the caller. It
holds the call as ``_pgqueue_receive`` takes it. A worker of the caller's database runs it: one statement, and
so one transaction, writes into the other database that the call was received, and its job. However often that
is done, there is one job.

    state on the way         here                                  there
    asked                    pending                               nothing
    between the commits      running                               received, with its job
    handed over              done, its result is the id there      the job
    there is no answer       retry, until the call expires         nothing
    refused                  failed, with the error                nothing

A cancel here writes a job of ``take_back`` if the call may be there (_pgqueue_recall), whatever becomes of
the attempt that is under way. It cancels the job there, or refuses the call that comes later.

Each commit of the other database costs it a flush, so the jobs that run at the same time in a process share
them.
"""

from __future__ import annotations

import asyncio
import json
from asyncio import AbstractEventLoop, Future
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC
from typing import Any
from weakref import WeakKeyDictionary

from asgiref.sync import sync_to_async
from django.db import DatabaseError, DataError, IntegrityError, InterfaceError, connections, transaction
from django.db.models import Exists, OuterRef

from ..compat import InvalidTask, TaskResult
from ..exceptions import BatchFinished, JobExists, ParentGone, PgQueueError
from ..formatting import get_logger
from ..models import Edge, Job
from ..postgres import fetch_rows, fetch_value
from ..tasks.call import Call, call_options, prepare
from ..tasks.decorator import task
from ..tasks.keys import limit_name
from ..tasks.links import public_id
from ..tasks.paths import RELAY
from ..tasks.retry import exponential
from ..tasks.shards import shard_of_call
from ..tasks.task import Task, declared_tasks
from ..tasks.unique import unique_key
from .current import current_job
from .enqueue import explained, write_all

logger = get_logger(__name__)

MOST = 100  # hand-overs in one transaction
#: Seconds that a hand-over waits for an answer. Then it fails, so that a database that does not answer leaves
#: the slots of the worker to other jobs: all but that of the job whose thread waits for the connection.
PATIENCE = 5.0
PAUSE = 1.0  # seconds for which a process does not try again a database that it could not reach
BACKOFF = (0.5, 30.0)  # seconds, at first and at most

_MOVED_SQL = "SELECT pgqueue_cancel(%s, 'moved to another shard by the relay')"
_RECEIVE_SQL = "SELECT id, job FROM _pgqueue_receive(%s::jsonb)"
_TAKE_BACK_SQL = "SELECT _pgqueue_take_back(%s::jsonb)"
_REFUSALS = (InvalidTask, BatchFinished, ParentGone, JobExists, DataError, IntegrityError)
#: The classes of errors that are about the database and not about one of the calls: it is lost or out of
#: resources, is a standby, or has no tables of this version, or no rights to them.
_ABOUT_ALL = ("08", "25", "42", "53", "57P")


class HandOverFailed(PgQueueError):
    """A call could not be handed over to its database. This is retried."""


def _backoff(error: BaseException, result: TaskResult[Any, Any]) -> float:
    return exponential(result.attempts, *BACKOFF)


@task(queue_name=RELAY, max_attempts=2**31 - 1, backoff=_backoff, fail_on=_REFUSALS)
async def hand_over(shard: str, call: dict[str, Any], token: str) -> str:
    """Hand over a call to another database. Return the id of its job there, such as "s1:77"."""
    _check(shard)
    loop, job = asyncio.get_running_loop(), current_job()
    courier = _COURIERS.setdefault(loop, {}).setdefault(shard, Courier(shard))
    claimed_at = job.last_attempted_at and job.last_attempted_at.astimezone(UTC).isoformat()
    content = {**call, "id": job.pk, "token": token, "claimed_at": claimed_at}
    return public_id(await courier.deliver(content), shard)


@task(queue_name=RELAY, max_attempts=2**31 - 1, backoff=_backoff, fail_on=InvalidTask)
def take_back(shard: str, calls: list[dict[str, Any]]) -> list[str]:
    """Cancel calls in another database, also ones yet to come. Return the ids of the jobs changed there."""
    _check(shard)
    _commit_each(shard)
    return [public_id(pk, shard) for pk in fetch_value(shard, _TAKE_BACK_SQL, json.dumps(calls)) or ()]


def _commit_each(shard: str) -> None:
    connection = connections[shard]
    if not connection.in_atomic_block and not connection.get_autocommit():
        connection.set_autocommit(True)  # no other code would commit


def _check(shard: str) -> None:
    if shard not in connections.settings:
        known = ", ".join(connections.settings)
        raise InvalidTask(f"The DATABASES of this worker have no {shard!r}, only {known}.")


class Courier:
    """Hands over to a database what an event loop's jobs have for it: all that waits in one transaction."""

    def __init__(self, shard: str) -> None:
        self._shard = shard
        #: By what answers them, with the id of the job there, or why there is none.
        self._waiting: dict[Future[int | Exception], dict[str, Any]] = {}
        self._sending: asyncio.Task[None] | None = None
        self._is_stuck = False
        self._failure: Exception | None = None
        self._down_until = 0.0

    async def deliver(self, content: dict[str, Any]) -> int:
        """Hand over a call as _pgqueue_receive reads it. Return its job's id there, or raise why not."""
        loop = asyncio.get_running_loop()
        if self._is_stuck or loop.time() < self._down_until:
            raise self._failed()
        answer: Future[int | Exception] = loop.create_future()
        self._waiting[answer] = content
        if self._sending is None:
            self._sending = asyncio.create_task(self._send())
        try:
            await asyncio.wait([answer], timeout=PATIENCE)
        except asyncio.CancelledError:
            if self._waiting.pop(answer, None) is None:  # its statement may need the thread of this job
                await asyncio.wait([answer], timeout=PATIENCE)
            raise
        if not answer.done():
            self._is_stuck = True
            self._failure = TimeoutError(f"no answer for {PATIENCE:g} seconds")
            raise self._failed()
        found = answer.result()
        if found is self._failure:
            raise self._failed()
        if isinstance(found, Exception):
            raise found
        return found

    def _failed(self) -> HandOverFailed:
        """Return the error of one job: several jobs must not raise the same one."""
        failed = HandOverFailed(f"The call could not be handed over to {self._shard!r}: {self._failure}")
        failed.__cause__ = self._failure
        return failed

    async def _send(self) -> None:
        """Hand over until nothing waits. A job that ends leaves this to go on for the others."""
        while self._waiting:
            some = {answer: self._waiting.pop(answer) for answer in list(self._waiting)[:MOST]}
            found: Sequence[int | Exception]
            try:
                found = await sync_to_async(receive)(self._shard, list(some.values()))
            except Exception as error:
                self._failure, self._down_until = error, asyncio.get_running_loop().time() + PAUSE
                some |= self._waiting
                self._waiting.clear()
                found = [error] * len(some)
            self._is_stuck = False
            for answer, each in zip(some, found, strict=True):
                answer.set_result(each)
        self._sending = None


_COURIERS: WeakKeyDictionary[AbstractEventLoop, dict[str, Courier]] = WeakKeyDictionary()


def receive(shard: str, calls: Sequence[dict[str, Any]]) -> list[int | Exception]:
    """Hand over calls in one transaction; if the database refuses one of them, each in its own. Return the
    ids of the jobs there, or why there is none. Raise what concerns all of them.
    """
    _commit_each(shard)
    # A test may have a transaction, which must survive an error.
    block = transaction.atomic(using=shard) if connections[shard].in_atomic_block else nullcontext()
    try:
        with block:
            jobs = {row[0]: row[1] for row in fetch_rows(shard, _RECEIVE_SQL, [json.dumps(calls)])}
    except (DatabaseError, InterfaceError) as error:
        if (getattr(error.__cause__, "sqlstate", None) or "08").startswith(_ABOUT_ALL):
            raise explained(error, shard) from error.__cause__
        if len(calls) > 1:
            return [answer for call in calls for answer in receive(shard, [call])]
        return [explained(error, shard)]
    return [jobs[call["id"]] or HandOverFailed("The call was cancelled.") for call in calls]


def move_spread(alias: str) -> Iterator[tuple[int, int]]:
    """Move the waiting jobs of a shard that are spread (``@task(spread=...)``) to the other shards, and yield
    of some at a time how many have moved and how many stay. In one transaction, a job is cancelled, and a job
    of the relay takes its call.

    Jobs that have started once stay, and so do jobs that others wait for, and jobs that wait or belong to a
    batch.

    Race: a worker claims a job at this moment. Whoever locks its row first has it; a cancelled job is not
    claimed, and a job that was claimed is no longer found here.
    """
    spread, after = {each.module_path: each for each in declared_tasks() if each.spread is not None}, 0
    while True:
        with transaction.atomic(using=alias):
            waiting = Job.objects.using(alias).filter(
                ~Exists(Edge.objects.using(alias).filter(parent_id=OuterRef("pk"))),
                shelf=0, status=Job.Status.PENDING, attempts=0, batch_id=None, parent_ids=None, pk__gt=after,
                task_path__in=spread,
            )  # fmt: skip
            jobs = list(waiting.order_by("pk").select_for_update(skip_locked=True)[:MOST])
            if not jobs:
                return
            made = ((job.pk, _call_elsewhere(job, spread[job.task_path])) for job in jobs)
            calls = {pk: call for pk, call in made if call is not None}
            fetch_rows(alias, _MOVED_SQL, [[*calls]])
            write_all(iter(calls.values()))
        after = jobs[-1].pk
        yield len(calls), len(jobs) - len(calls)


def _call_elsewhere(job: Job, definition: Task[..., Any]) -> Call | None:
    """Return the call of a job for another shard, as the relay takes it; None: its row does not have all."""
    own = "" if job.tenant is None else f"{job.tenant}:"  # its keys have this prefix, and get it again there
    unique, name, limited = definition.unique, f"{limit_name(definition)}/{own}", job.limit_key or ""
    try:
        if job.unique_key != (unique and f"{own}{unique_key(definition, job.args, job.kwargs)}"):
            return None  # it was an option of the call
        shard = shard_of_call(definition, job.args, job.kwargs)
        task = definition.with_values(
            {
                "relay": shard, "database": job.database, "queue_name": job.queue_name,
                "priority": job.priority, "metadata": job.metadata, "run_after": job.run_after,
                "expires_after": job.expires_at and job.expires_at - job.run_after, "timeout": job.timeout,
                "max_attempts": job.max_attempts, "on_lost": job.on_lost, "group_key": job.group_key,
                "limit_key": (limited.removeprefix(name) or None) if limited.startswith(name) else None,
                "unique": unique and replace(unique, on_conflict="existing"),
            }
        )  # fmt: skip
        context = None if job.context is None else json.dumps(job.context)
        return prepare(call_options(task), job.args, job.kwargs, context, job.tenant)
    except (PgQueueError, InvalidTask, TypeError, ValueError) as error:
        logger.warning(
            "job %s stays: it cannot be enqueued on another shard: %s", public_id(job.pk, job.database), error
        )
        return None
