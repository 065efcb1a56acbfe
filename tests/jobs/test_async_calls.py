"""Calls from async code: none of them blocks the event loop while the database makes it wait."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from inspect import iscoroutinefunction
from typing import Any, NamedTuple

import pytest

import django_pgqueue
from django_pgqueue import (
    RateLimit,
    RateLimiter,
    acancel,
    achain,
    adrain_worker,
    aedit,
    aenqueue,
    aenqueue_many,
    aextend,
    apause,
    areset_limit,
    aresume,
    aretry,
    asend_event,
    aset_limit,
    awhy,
    enqueue,
)
from django_pgqueue.models import Job
from django_pgqueue.models.changes import arun_now
from tests.app.tasks import noop
from tests.support.coroutines import run
from tests.support.sessions import Connect
from tests.support.waiting import until

pytestmark = pytest.mark.django_db(transaction=True)

TABLES = "pgqueue_job, pgqueue_worker, pgqueue_limit, pgqueue_pause"
LOCKED = "SELECT count(*) FROM pg_locks WHERE NOT granted"
SHORT = 5.0  # seconds


class Given(NamedTuple):
    """What the calls are about."""

    job: Job
    result: Any


CALLS: dict[str, Callable[[Given], Awaitable[Any]]] = {
    "aenqueue": lambda given: aenqueue(noop),
    "aenqueue_many": lambda given: aenqueue_many([noop.bind()]),
    "acancel": lambda given: acancel(given.job),
    "aretry": lambda given: aretry(given.job),
    "arun_now": lambda given: arun_now(given.job),
    "aedit": lambda given: aedit(given.job, priority=1),
    "awhy": lambda given: awhy(given.job),
    "aextend": lambda given: aextend(given.job, 60),
    "apause": lambda given: apause(queue="some"),
    "aresume": lambda given: aresume(queue="some"),
    "aset_limit": lambda given: aset_limit(name="some", concurrency=2),
    "areset_limit": lambda given: areset_limit(name="other"),
    "asend_event": lambda given: asend_event(given.job, "approved"),
    "adrain_worker": lambda given: adrain_worker(7),
    "achain": lambda given: achain([noop.bind(), noop.bind()]),
    "Task.aenqueue": lambda given: noop.aenqueue(),
    "Task.aget_result": lambda given: noop.aget_result(given.result.id),
    "TaskResult.arefresh": lambda given: given.result.arefresh(),
    "QuerySet.acancel": lambda given: Job.objects.filter(pk=given.job.pk).acancel(),
    "QuerySet.aretry": lambda given: Job.objects.filter(pk=given.job.pk).aretry(),
    "QuerySet.aedit": lambda given: Job.objects.filter(pk=given.job.pk).aedit(priority=2),
    "QuerySet.arun_now": lambda given: Job.objects.filter(pk=given.job.pk).arun_now(),
    "QuerySet.aextend": lambda given: Job.objects.filter(pk=given.job.pk).aextend(60),
    "Job.aretry": lambda given: given.job.aretry(),
    "RateLimiter.atake": lambda given: RateLimiter("some").atake(),
    "RateLimiter.aseconds_until": lambda given: RateLimiter("some").aseconds_until(),
}


def test_every_public_coroutine_function_is_here() -> None:
    public = {name for name in django_pgqueue.__all__ if iscoroutinefunction(getattr(django_pgqueue, name))}
    assert public <= set(CALLS)


def test_the_loop_goes_on_while_a_call_waits_for_the_database(connect: Connect) -> None:
    django_pgqueue.set_limit(name="some", rate_limit=RateLimit(100, per=timedelta(seconds=1)))
    given = Given(enqueue(noop), noop.enqueue())
    observer, holder = connect(autocommit=True), connect()
    answered: list[str] = []

    def waits() -> bool:
        row = observer.execute(LOCKED).fetchone()
        return row is not None and row[0] > 0

    async def answer(name: str) -> None:
        answered.append(name)

    def let_go_when_the_loop_answers(name: str, loop: asyncio.AbstractEventLoop) -> None:
        try:
            until(waits, seconds=SHORT, what=f"{name} waits for the lock")
            asyncio.run_coroutine_threadsafe(answer(name), loop).result(SHORT)
        finally:
            holder.rollback()

    async def main() -> None:
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(1) as threads:
            for name, call in CALLS.items():
                holder.execute(f"LOCK TABLE {TABLES} IN ACCESS EXCLUSIVE MODE")
                watch = threads.submit(let_go_when_the_loop_answers, name, loop)
                await call(given)
                watch.result(SHORT)

    run(main())
    assert answered == list(CALLS)
