"""Tasks for the tests of the worker. Tests control and observe them through `GATES` and `SEEN`."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import Any

from asgiref.sync import sync_to_async
from django.db import DataError, connection, connections, transaction

from django_pgqueue import CancelJob, JobContext, RetryLater, Snooze, current_job, enqueue, task
from django_pgqueue.compat import TaskContext

from .models import Entry

DEADLINE = 20.0  # seconds

#: Events by name, for jobs that wait for the test and tests that wait for a job. `reset` empties them.
GATES: dict[str, threading.Event] = {}
#: What jobs have seen, in order.
SEEN: list[Any] = []
_LOCK = threading.Lock()


def reset() -> None:
    """Release every job that still waits, and clear both."""
    with _LOCK:
        for event in GATES.values():
            event.set()
        GATES.clear()
        SEEN.clear()


def gate(name: str) -> threading.Event:
    """Return the event of this name. It is created when it is first used."""
    with _LOCK:
        return GATES.setdefault(name, threading.Event())


async def open_gate(name: str) -> None:
    """Wait on the event loop until the test opens a gate."""
    async with asyncio.timeout(DEADLINE):
        while not gate(name).is_set():
            await asyncio.sleep(0.002)


def runs(*names: str) -> None:
    """Wait until the jobs run that hold under these names."""
    for name in names:
        assert gate(f"{name} runs").wait(DEADLINE), f"{name} does not run"


def release(*names: str) -> None:
    """Let these jobs go on."""
    for name in names:
        gate(name).set()


@contextmanager
def held(*names: str, task: Any = None) -> Iterator[Any]:
    """Enqueue jobs, and wait until they run and hold. They go on at the end of the block, if not before."""
    jobs = [enqueue(task or hold, name) for name in names]
    runs(*names)
    try:
        yield jobs[0] if len(jobs) == 1 else jobs
    finally:
        release(*names)


@task
def noop() -> None:
    """Nothing."""


@task
def nap(seconds: float) -> None:
    time.sleep(seconds)


@task
def add(a: int, b: int = 0) -> int:
    return a + b


@task
def note(key: str, text: str = "") -> None:
    Entry.objects.create(key=key, note=text)


@task
def see(value: Any) -> None:
    SEEN.append(value)


@task
def hold(name: str) -> str:
    """Report that it runs, then wait for the test."""
    gate(f"{name} runs").set()
    assert gate(name).wait(DEADLINE)
    return name


@task(max_attempts=3, backoff=0)
def fail(message: str = "broken") -> None:
    raise ValueError(message)


class Weighty:
    """Something that a task holds in its hands."""


@task(max_attempts=1)
def fail_with_weight() -> None:
    job, weight = current_job(), Weighty()
    SEEN.append(weakref.ref(weight))
    raise ValueError(job.pk, "broken")


@task(max_attempts=1)
async def afail_with_weight() -> None:
    await asyncio.sleep(0)
    fail_with_weight.func()


@task(max_attempts=2, backoff=0)
def fail_once(message: str = "broken") -> str:
    if current_job().attempts == 1:
        raise ValueError(message)
    return "second"


@task(max_attempts=3, backoff=0, fail_on=(KeyError,), retry_on=(LookupError,))
def choosy(name: str) -> None:
    raise {"key": KeyError, "type": TypeError}[name](name)


@task(max_attempts=3, backoff=0)
def calls_wrongly(number: int) -> None:
    """Its arguments are correct, but its body makes the same mistake as a wrong call."""
    SEEN.append(number)
    calls_wrongly.bind()  # type: ignore[call-arg]


@task(max_attempts=3)
def slow_backoff() -> None:
    raise ValueError("later")


@task(max_attempts=4, backoff=[100, 200])
def sequence_backoff() -> None:
    raise ValueError("later")


def _backoff(exc: BaseException, result: Any) -> float | None:
    SEEN.append((exc, result))
    answer = exc.args[0]
    if answer == "raise":
        raise SystemExit("backoff")
    return answer  # type: ignore[no-any-return]


@task(max_attempts=3, backoff=_backoff)
def called_backoff(answer: Any) -> None:
    raise ValueError(answer)


@task(max_attempts=2, backoff=1000, fail_on=(RetryLater,))
def retry_later(after: float | None = None) -> None:
    raise RetryLater(after)


@task
def snooze(seconds: float, *, absolute: bool = False) -> None:
    wait = timedelta(seconds=seconds)
    raise Snooze(until=datetime.now(UTC) + wait) if absolute else Snooze(wait)


@task
def snooze_to_the_end_of_time() -> None:
    raise Snooze(until=datetime.max.replace(tzinfo=UTC))


@task
def cancel_itself(reason: str = "") -> None:
    raise CancelJob(f"{reason}\0")


class Unprintable(Exception):
    def __str__(self) -> str:
        raise SystemExit("no")

    __repr__ = __str__


@task(max_attempts=1)
def raise_odd(kind: str) -> None:
    raise {
        "unprintable": Unprintable(), "nul": ValueError("a\0b"), "SystemExit": SystemExit("from the task"),
        "group": ExceptionGroup("many", [ValueError("one"), KeyError("two")]),
    }[kind]  # fmt: skip


@task(max_attempts=5, backoff=0)
def bad_result(kind: str) -> Any:
    SEEN.append(kind)
    return {"set": {1}, "nan": float("nan"), "nul": "a\0", "object": object(), "huge": "x" * 2**21}[kind]


@task(expires_after=timedelta(hours=1))
def perishable() -> None:
    SEEN.append("ran")


@task(takes_context=True)
def contextual(context: Any, value: int) -> list[Any]:
    return [context.attempt, context.task_result.id, value]


@task(takes_context=True, max_attempts=2, backoff=0)
def sees_context(context: JobContext, value: int) -> dict[str, Any]:
    """Fails until it is attempt number `value`, and returns what its context says then."""
    if context.attempt < value:
        raise ValueError("again")
    result = context.task_result
    errors = [error.exception_class_path for error in result.errors]
    return {
        "is current": context.job is current_job(),
        "is Django's": isinstance(context, TaskContext),
        "job": [context.job.pk, context.job.status, context.job.attempts],
        "result": [result.id, result.status, result.attempts, errors],
    }


@task(takes_context=True, max_attempts=2, backoff=0)
async def asees_context(context: JobContext, value: int) -> dict[str, Any]:
    """Like `sees_context`, on the event loop."""
    return await sync_to_async(sees_context.func)(context, value)


@task
def inside() -> dict[str, Any]:
    job = current_job()
    return {"id": job.pk, "attempts": job.attempts, "status": job.status, "lease": job.lease is not None}


@task
def stoppable(name: str) -> str:
    """A sync task that checks whether it is asked to stop."""
    job = current_job()
    assert not job.cancel_requested
    gate(f"{name} runs").set()
    if job.wait_for_cancel(DEADLINE):
        SEEN.append((name, job.cancel_requested))
        raise CancelJob("stopped when asked")
    return "never asked"


@task(max_attempts=3, backoff=0)
def stops_by_error(name: str) -> None:
    gate(f"{name} runs").set()
    assert current_job().wait_for_cancel(DEADLINE)
    raise ConnectionError("torn down")


@task
async def asleep(name: str) -> str:
    gate(f"{name} runs").set()
    try:
        await asyncio.sleep(DEADLINE)
    except asyncio.CancelledError:
        SEEN.append(f"{name} cancelled")
        raise
    return "slept"


@task
async def ahold(name: str) -> str:
    """Like `hold`, without a thread."""
    gate(f"{name} runs").set()
    await open_gate(name)
    return name


@task
async def ameet(name: str, count: int) -> None:
    """Wait until `count` jobs are running at the same time."""
    SEEN.append(name)
    async with asyncio.timeout(DEADLINE):
        while SEEN.count(name) < count:
            await asyncio.sleep(0.002)


@task
def meet(name: str, count: int) -> None:
    """Do the same in threads."""
    SEEN.append(name)
    if SEEN.count(name) >= count:
        gate(name).set()
    assert gate(name).wait(DEADLINE)


@task(max_attempts=1)
async def afail(message: str) -> None:
    await asyncio.sleep(0)
    raise ValueError(message)


@task
async def aid_everywhere() -> list[int]:
    """Return the job's id on the loop, in `sync_to_async`, in `to_thread` and in a separate asyncio task."""

    async def child() -> int:
        return current_job().pk

    return [
        current_job().pk,
        await sync_to_async(lambda: current_job().pk)(),
        await asyncio.to_thread(lambda: current_job().pk),
        await asyncio.create_task(child()),
    ]


@task
async def anote(key: str) -> None:
    await Entry.objects.acreate(key=key)


@task
async def ablock_thread(name: str) -> None:
    """Block the thread of `sync_to_async`."""
    await sync_to_async(hold.func)(name)


def ask(query: Any, *parameters: Any, using: str = "default") -> Any:
    """Execute a statement on the connection of this thread, and return its first row."""
    with connections[using].cursor() as cursor:
        cursor.execute(query, parameters or None)
        return cursor.fetchone() if cursor.description else None


def backend_pid() -> int:
    """Return the server process of this thread's connection."""
    return int(ask("SELECT pg_backend_pid()")[0])


@task
def backend() -> int:
    return backend_pid()


@task
async def abackend() -> int:
    return await sync_to_async(backend_pid)()


@task(max_attempts=1)
def leave(kind: str) -> int:
    """Leave the connection in a bad state."""
    pid = backend_pid()
    if kind == "broken":
        connection.connection.close()
        return pid
    if kind == "autocommit off":
        transaction.set_autocommit(False)
    else:
        transaction.atomic().__enter__()
    if kind in ("transaction", "autocommit off"):
        Entry.objects.create(key="left uncommitted")
    elif kind == "closed in a transaction":
        connection.close()
    elif kind == "error":
        with suppress(DataError):
            ask("SELECT 1 / 0")
    return pid


@task(max_attempts=1)
async def aleave(kind: str) -> int:
    return await sync_to_async(leave.func)(kind)


@task(atomic=True, max_attempts=2, backoff=0)
def effect(key: str, then: str = "") -> str:
    """Write a row in the transaction of the job."""
    Entry.objects.create(key=key)
    SEEN.append(current_job().attempts)
    if then == "raise":
        raise ValueError("after the effect")
    if then == "bad result":
        return object()  # type: ignore[return-value]
    if then == "snooze":
        raise Snooze(timedelta(hours=1))
    if then == "wait":
        hold.func(key)
    return key


@task(atomic=True, max_attempts=1)
def hurry(key: str) -> None:
    """Write a row, and let the session have a short lock timeout, as its role might have."""
    Entry.objects.create(key=key)
    SEEN.append(current_job().attempts)
    ask("SET LOCAL lock_timeout = '20ms'")
    hold.func(key)


@task
def raw_connection(alias: str) -> int:
    """Open a connection, unless there is one, and return which object it is."""
    if connections[alias].connection is None:
        connections[alias].connect()  # a test lets no other call open an alias that it has not declared
    return id(connections[alias].connection)


@task(atomic=True, max_attempts=1)
def end_session(alias: str = "default") -> None:
    """Write a row, and end the session of this transaction, or of another database."""
    Entry.objects.create(key="session")
    SEEN.append(current_job().attempts)
    ask("SELECT pg_terminate_backend(pg_backend_pid())", using=alias)


@task(atomic=True, max_attempts=1)
def meet_full_disk(code: str = "disk_full") -> None:
    """Write a row, and let the server refuse the next one for want of space in the first run."""
    Entry.objects.create(key="full")
    SEEN.append(current_job().attempts)
    if len(SEEN) == 1:
        ask(f"DO $$ BEGIN RAISE EXCEPTION 'test' USING ERRCODE = '{code}'; END $$")


@task(atomic=True, max_attempts=1)
def increment(key: str) -> int:
    """Read, wait for another job, then write. Under REPEATABLE READ, one of two must be repeated."""
    ask("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    entry = Entry.objects.get(key=key)
    SEEN.append("read")
    hold.func(key)
    entry.note = str(int(entry.note) + 1)
    entry.save()
    return int(entry.note)


@task
def whole_process() -> list[Any]:
    """Return the process that ran this job."""
    return [os.getpid(), os.getppid(), sys.argv[0]]


@task
def frozen() -> list[int]:
    """Return how many objects are excluded from garbage collection in this process, and how many are not."""
    return [gc.get_freeze_count(), len(gc.get_objects())]


@task(backend="nowhere", max_attempts=1)
def elsewhere() -> None:
    """A task of a backend that these settings do not have."""
    raise ValueError("ran")


@task
def lose_own_lease() -> None:
    """Do what a recovery does while the job runs: put it back in its queue, due in an hour."""
    ask(
        "UPDATE pgqueue_job_live SET status = 'pending', worker = NULL, lease = NULL,"
        " run_after = now() + interval '1 hour' WHERE id = %s", current_job().pk,
    )  # fmt: skip


@task
def wait_for_entry(key: str) -> str:
    """Wait until a row exists, which a test in another process can insert."""
    note.func(f"{key} runs")
    end = time.monotonic() + 60
    while not Entry.objects.filter(key=key).exists():
        assert time.monotonic() < end
        time.sleep(0.05)
    return key


@task
def count_runs(key: str) -> None:
    """Insert one row for each run, with the process that ran it."""
    note.func(key, str(os.getpid()))


@task
def say(text: str) -> None:
    print(text)


@task
def hop(*databases: str) -> None:
    """Enqueue the rest of the way on the next database."""
    if databases:
        enqueue(hop.using(database=databases[0]), *databases[1:])
