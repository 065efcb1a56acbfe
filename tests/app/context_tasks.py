"""Tasks that tell in what context they run."""

from __future__ import annotations

import asyncio
import logging
from contextvars import ContextVar
from datetime import timedelta
from typing import Any

from asgiref.sync import sync_to_async
from django.utils import translation

from django_pgqueue import RetryLater, Snooze, current_job, enqueue, task
from tests.app import hooks

TENANT: ContextVar[Any] = ContextVar("tenant")
#: What CONTEXT calls it.
TENANT_PATH = f"{__name__}.TENANT"

logger = logging.getLogger("tests.shop")


@task
def look() -> dict[str, Any]:
    job = current_job()
    return {
        "language": translation.get_language(),
        "tenant": TENANT.get(None),
        "user": job.user_id,
        "trace": job.traceparent,
    }


@task
async def alook() -> dict[str, Any]:
    return look.func()


@task
async def look_in_a_thread() -> dict[str, Any]:
    return await sync_to_async(look.func, thread_sensitive=False)()


@task(atomic=True)
def look_atomic() -> dict[str, Any]:
    return look.func()


@task
def pass_on() -> int:
    return enqueue(look).pk


@task
def change_the_language() -> None:
    translation.activate("fr")


@task(capture_logs=True)
def log(count: int, message: str = "line %d") -> None:
    logger.debug("too detailed")
    for number in range(count):
        logger.info(message, number)


@task(capture_logs="WARNING", max_attempts=2, backoff=0)
def fail_loudly() -> None:
    logger.info("not kept")
    try:
        raise ValueError("a detail")
    except ValueError:
        logger.exception("it is about to fail in attempt %d", current_job().attempts)
    raise RetryLater(0)


@task(capture_logs=True, atomic=True)
def log_atomic() -> None:
    logger.info("inside the transaction")


@task(capture_logs=True, max_attempts=1)
async def tell_and_snooze() -> None:
    """Log what there is of its context and its hooks, and snooze inside of a TaskGroup."""
    logger.warning("%s, %s", translation.get_language(), hooks.TENANT.get("").partition(" ")[0])

    async def snooze() -> None:
        raise Snooze(timedelta(hours=1))

    async with asyncio.TaskGroup() as group:
        group.create_task(snooze())


@task(capture_logs=True)
async def alog() -> None:
    logger.info("on the loop")
    await asyncio.to_thread(logger.info, "in a thread")


@task
def log_by_queue() -> None:
    logger.info("by queue")


@task(capture_logs=False)
def log_never() -> None:
    logger.info("never kept")
