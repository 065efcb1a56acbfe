"""Hooks that record where they are, and tasks that record what they find there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext
from contextvars import ContextVar
from threading import get_ident
from time import sleep
from typing import TYPE_CHECKING, Any

from django.db import connection

from django_pgqueue import BoundTask, current_job, enqueue, task
from django_pgqueue.models.current import CurrentJob

from .models import Entry
from .worker_tasks import ask

SEEN: list[str] = []
CALLS: list[str] = []
TENANT: ContextVar[str] = ContextVar("tenant")
#: What `troubled` raises at its start and at its end.
RAISES: dict[str, Callable[[], BaseException]] = {}


def _raise(where: str) -> None:
    if where in RAISES:
        raise RAISES[where]()


def _at(what: str) -> None:
    SEEN.append(f"{what} in a transaction" if connection.in_atomic_block else what)


@contextmanager
def outer(job: CurrentJob) -> Iterator[None]:
    assert job is current_job()
    _at("outer enters")
    token = TENANT.set(f"{job.metadata.get('tenant')} on {get_ident()}")
    try:
        yield
    except BaseException as error:
        SEEN.append(f"outer sees {type(error).__name__}")
        raise
    finally:
        TENANT.reset(token)
        _at("outer leaves")


class Inner:
    """Hides what the task raises, which does not help."""

    def __init__(self, job: CurrentJob) -> None:
        pass

    def __enter__(self) -> None:
        SEEN.append("inner enters")

    def __exit__(self, kind: Any, error: Any, trace: Any) -> bool:
        SEEN.append(f"inner leaves {'' if kind is None else kind.__name__}".rstrip())
        return True


@asynccontextmanager
async def awaited(job: CurrentJob) -> AsyncIterator[None]:
    SEEN.append("awaited enters")
    TENANT.set("awaited")
    try:
        yield
    finally:
        SEEN.append("awaited leaves")


@contextmanager
def troubled(job: CurrentJob) -> Iterator[None]:
    _raise("enter")
    yield
    _raise("exit")


@contextmanager
def translating(job: CurrentJob) -> Iterator[None]:
    """Raises something else than the task."""
    try:
        yield
    except KeyError as error:
        raise RAISES["instead"]() from error


@contextmanager
def slow(job: CurrentJob) -> Iterator[None]:
    sleep(1.5)
    yield


def nothing(job: CurrentJob) -> None:
    pass


async def coroutine(job: CurrentJob) -> Any:
    return nullcontext()


def tenant(call: BoundTask) -> BoundTask | None:
    """Notes the tenant of the caller in each call, but in those of one task."""
    if call.task.module_path.endswith(".fail"):
        return None
    in_transaction = " in a transaction" if connection.in_atomic_block else ""
    CALLS.append(f"{call.task.module_path.rpartition('.')[2]}{call.args}{in_transaction}")
    if not TENANT.get(""):
        raise PermissionError("no tenant")
    return call.using(metadata={"tenant": TENANT.get()})


def urgent(call: BoundTask) -> BoundTask:
    """Sees what the hook before it has made."""
    return call.using(priority=7, metadata={"urgent": True})


def confused(call: BoundTask) -> Any:
    return call.task


def stranger(call: BoundTask) -> BoundTask:
    return see.bind(5)


def endless(call: BoundTask) -> None:
    enqueue(see, 1)


def audits(call: BoundTask) -> None:
    if call.task.module_path != audit.module_path:
        enqueue(audit, call.task.module_path)


@task
def see(value: int) -> int:
    return value


@task
def audit(path: str) -> None: ...


@task
def look() -> str:
    SEEN.append("task")
    tenant, _, thread = TENANT.get().partition(" on ")
    return f"{tenant}, same thread" if thread == str(get_ident()) else tenant


@task
async def alook() -> str:
    SEEN.append("task")
    return TENANT.get().partition(" on ")[0]


@task(atomic=True)
def look_atomic() -> str:
    _at("task")
    return TENANT.get().partition(" on ")[0]


@task(atomic=True)
def leave() -> None:
    """Let another worker have the job."""
    ask("UPDATE pgqueue_job_live SET lease = lease + 1 WHERE id = %s", current_job().pk)


@task(max_attempts=1)
def fail() -> None:
    raise KeyError("lost")


@task(max_attempts=1)
async def afail() -> None:
    raise KeyError("lost")


@task(max_attempts=1)
def endure() -> None:
    for _ in range(2_000):
        sleep(0.01)


@task(max_attempts=1)
async def aendure() -> None:
    await asyncio.sleep(20)


if TYPE_CHECKING:
    from django_pgqueue.alerts import Alert


def write(alert: Alert) -> None:
    """Write a row that a test can wait for."""
    Entry.objects.create(key=f"{alert.kind} {'over' if alert.is_over else 'raised'}", note=alert.text)
