"""Tasks that do what a task should not do."""

from __future__ import annotations

import asyncio
import decimal
import threading
from collections.abc import Callable
from contextvars import copy_context
from itertools import count
from typing import Any

from asgiref.sync import sync_to_async
from django.db import connection, transaction
from django.utils import timezone, translation
from psycopg import IsolationLevel, sql
from psycopg.rows import dict_row

from django_pgqueue import CancelJob, acancel, aenqueue, cancel, current_job, enqueue, task
from django_pgqueue.models import Job

from .models import Entry
from .worker_tasks import SEEN, ask, backend_pid, gate


def _execute(*statements: Any) -> Callable[[], Any]:
    return lambda: [*map(ask, statements)]


def _in_a_transaction(*statements: Any) -> Callable[[], None]:
    def run() -> None:
        with transaction.atomic():
            _execute(*statements)()

    return run


def _set_raw(name: str, value: Any) -> Callable[[], None]:
    return lambda: setattr(connection.connection, name, value)


def _without_a_watch() -> None:
    connection.execute_wrappers.clear()
    _execute("SET statement_timeout = 9000")()


#: Statements that leave something in a session, by name.
STATES: dict[str, Callable[[], Any]] = {
    "variable": _execute("SET statement_timeout = 9000"),
    "search_path": _execute("set SESSION search_path TO pg_catalog"),
    "after another": _execute("SELECT 1; /* a */ SET statement_timeout = 9000"),
    "set_config": _execute("SELECT set_config('app.tenant', '7', false)"),
    "composed": _execute(sql.SQL("SET {} = 9000").format(sql.Identifier("statement_timeout"))),
    "bytes": _execute(b"SET statement_timeout = 9000"),
    "block": _execute("DO $$ BEGIN SET statement_timeout = 9000; END $$"),
    "in a transaction": _in_a_transaction("SET statement_timeout = 9000"),
    "role": _execute("SET ROLE pg_monitor"),
    "time zone": _execute("SET TIME ZONE 'Asia/Tokyo'"),
    "isolation": _execute("SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL SERIALIZABLE"),
    "lock": _execute("SELECT pg_advisory_lock(4711)"),
    "shared lock": _execute("SELECT pg_try_advisory_lock_shared(4711)"),
    "listen": _execute("LISTEN hostile"),
    "temporary table": _execute("CREATE TEMPORARY TABLE hostile (a integer)"),
    "temporary copy": _execute("SELECT 1 AS a INTO TEMP hostile"),
    "prepared": _execute("PREPARE hostile AS SELECT 1"),
    "cursor": _in_a_transaction("DECLARE hostile CURSOR WITH HOLD FOR SELECT 1"),
    "raw isolation": _set_raw("isolation_level", IsolationLevel.SERIALIZABLE),
    "raw read-only": _set_raw("read_only", True),
    "raw autocommit": _set_raw("autocommit", False),
    "raw rows": _set_raw("row_factory", dict_row),
    "past Django": lambda: connection.connection.execute("SET DateStyle = 'German'"),
    "without a watch": _without_a_watch,
}

_LOOK = """
    SELECT pg_backend_pid(), current_setting('search_path'), current_setting('statement_timeout'),
        coalesce(current_setting('app.tenant', true), ''), current_user, current_setting('TimeZone'),
        current_setting('DateStyle'), current_setting('transaction_isolation'),
        current_setting('transaction_read_only'),
        (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()),
        (SELECT count(*) FROM pg_listening_channels()), (SELECT count(*) FROM pg_prepared_statements),
        (SELECT count(*) FROM pg_cursors), (SELECT count(*) FROM pg_class WHERE relpersistence = 't'
            AND pg_table_is_visible(oid)), pg_current_xact_id_if_assigned() IS NULL
"""


@task(max_attempts=1)
def look() -> list[Any]:
    """Return the server process, and what a job may find in its session."""
    return list(ask(_LOOK))


@task(max_attempts=1)
async def alook() -> list[Any]:
    return await sync_to_async(look.func)()


@task(max_attempts=1)
async def tlook() -> list[Any]:
    """Do the same on a thread of `to_thread`."""
    return await sync_to_async(look.func, thread_sensitive=False)()


@task(max_attempts=1)
def leave_state(kind: str) -> int:
    """Leave something in the session. Return the server process from before that."""
    pid = backend_pid()
    STATES[kind]()
    return pid


@task(max_attempts=1)
async def aleave_state(kind: str) -> int:
    return await sync_to_async(leave_state.func)(kind)


@task(max_attempts=1)
async def tleave_state(kind: str) -> int:
    return await sync_to_async(leave_state.func, thread_sensitive=False)(kind)


@task(max_attempts=1)
def give_back_with_state(kind: str) -> int:
    """Do the same, but close the connection, so that a pool gets it back before the worker can see it."""
    pid = leave_state.func(kind)
    connection.close()
    return pid


@task(max_attempts=1)
def work_durably(key: str) -> None:
    """Open the outermost transaction, or raise an error."""
    with transaction.atomic(durable=True):
        Entry.objects.create(key=key)


class Base(BaseException):
    pass


class Unprintable(Exception):
    """Everything that one can do with it raises an exception."""

    __notes__ = 5  # type: ignore[assignment]

    def __str__(self) -> str:
        raise Base

    __repr__ = __str__

    def __eq__(self, other: object) -> bool:
        raise Base

    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> bool:
        raise Base


class Unpicklable(Exception):
    def __init__(self, *, only_keyword: int) -> None:
        super().__init__()
        self.lock = threading.Lock()


class Lengthy(Exception):
    def __str__(self) -> str:
        return "x" * 2_000_000


class Recursive(Exception):
    def __str__(self) -> str:
        return str(self)


class Misleading(CancelJob):
    reason = property(lambda self: 1 / 0, lambda self, value: None)


def _recurse() -> Any:
    return [_recurse()]


def _raise(error: BaseException | type[BaseException]) -> Callable[[], None]:
    def run() -> None:
        raise error

    return run


#: Ways to leave a task, by name.
ERRORS: dict[str, Callable[[], Any]] = {
    "BaseException": _raise(Base),
    "SystemExit": _raise(SystemExit(3)),
    "KeyboardInterrupt": _raise(KeyboardInterrupt),
    "GeneratorExit": _raise(GeneratorExit),
    "StopIteration": _raise(StopIteration),
    "StopAsyncIteration": _raise(StopAsyncIteration),
    "RecursionError": _recurse,
    "MemoryError": lambda: bytearray(2**62),
    "CancelledError": _raise(asyncio.CancelledError),
    "unprintable": lambda: _raise(Unprintable())(),
    "unpicklable": lambda: _raise(Unpicklable(only_keyword=1))(),
    "nul": lambda: _raise(ValueError("a\0b"))(),
    "surrogate": lambda: _raise(ValueError("a\ud800b"))(),
    "lengthy": _raise(Lengthy),
    "recursive": _raise(Recursive),
    "group": lambda: _raise(ExceptionGroup("many", [ValueError(), ExceptionGroup("in", [KeyError()])]))(),
    "base group": lambda: _raise(BaseExceptionGroup("many", [SystemExit(), KeyboardInterrupt(), Base()]))(),
    "the same again": _raise(ValueError("the same")),  # one object in all attempts
}


@task(max_attempts=2, backoff=0)
def raise_(kind: str) -> None:
    """Leave the task in one of these ways."""
    ERRORS[kind]()


@task(max_attempts=2, backoff=0)
async def araise(kind: str) -> None:
    await asyncio.sleep(0)
    ERRORS[kind]()


@task(max_attempts=2, backoff=0)
async def raise_in_child(kind: str) -> None:
    """Do the same in an asyncio task of its own. asyncio lets SystemExit leave the event loop."""
    coroutine: Any = araise.func(kind)
    await asyncio.create_task(coroutine)


@task(max_attempts=2, backoff=0)
async def raise_in_thread(kind: str) -> None:
    if kind == "StopIteration" and not _futures_take_it():
        raise RuntimeError("asyncio would wait for it for ever")
    await sync_to_async(ERRORS[kind])()


def _futures_take_it() -> bool:
    """Whether Python can pass a StopIteration from a thread to a coroutine. Before 3.12.2 it cannot."""
    future = asyncio.get_running_loop().create_future()
    try:
        future.set_exception(StopIteration())
    except TypeError:
        return False
    return future.exception() is not None


@task(atomic=True, max_attempts=2, backoff=0)
def raise_in_atomic(kind: str) -> None:
    Entry.objects.create(key=kind)
    ERRORS[kind]()


@task(max_attempts=3, backoff=0)
def cancel_oddly(kind: str) -> None:
    """End as cancelled, with a reason that is not a string."""
    if kind == "misleading":
        raise Misleading("x")
    reasons: Any = {"error": ValueError("why"), "unprintable": Unprintable(), "none": None, "bytes": b"x"}
    raise CancelJob(reasons[kind])


def _contains_itself() -> list[Any]:
    own: list[Any] = []
    own.append(own)
    return own


def _deep() -> list[Any]:
    value: list[Any] = []
    for _ in range(100_000):
        value = [value]
    return value


class _Dict(dict[str, Any]):
    def items(self) -> Any:
        raise Base


#: Results that cannot be stored, by name.
RESULTS: dict[str, Callable[[], Any]] = {
    "huge text": lambda: "x" * 5_000_000,
    "huge list": lambda: list(range(500_000)),
    "huge number": lambda: 1 << 1_000_000,
    "contains itself": _contains_itself,
    "deep": _deep,
    "endless": count,
    "hostile dict": lambda: _Dict(a=Base),
    "exception": lambda: ValueError("returned"),
    "object": object,
    "set": lambda: {1},
    "nan": lambda: float("nan"),
    "nul": lambda: "a\0",
}


@task(max_attempts=3, backoff=0)
def give(kind: str) -> Any:
    """Return a value that cannot be stored."""
    SEEN.append(kind)
    return RESULTS[kind]()


@task(max_attempts=3, backoff=0)
async def agive(kind: str) -> Any:
    SEEN.append(kind)
    return RESULTS[kind]()


@task
def breed(name: str) -> None:
    """Enqueue itself until the test says stop."""
    if not gate(name).is_set():
        gate(f"{name} runs").set()
        enqueue(breed, name)


@task
async def abreed(name: str) -> None:
    if not gate(name).is_set():
        gate(f"{name} runs").set()
        await aenqueue(abreed, name)


@task
def breed_two(name: str) -> None:
    """Enqueue itself twice, so that there are more and more jobs."""
    if not gate(name).is_set():
        gate(f"{name} runs").set()
        enqueue(breed_two, name)
        enqueue(breed_two, name)


@task(max_attempts=3, backoff=0)
def cancel_itself(then: str) -> str:
    """Ask its own job to stop, and continue in one of several ways."""
    assert cancel(current_job()) == 1
    assert cancel(current_job()) == 0
    if then == "look":
        assert current_job().wait_for_cancel(20)
        raise CancelJob("heard it")
    if then == "raise":
        raise ValueError("after it")
    return then


@task(atomic=True, max_attempts=3, backoff=0)
def cancel_itself_in_atomic(then: str) -> str:
    Entry.objects.create(key=then)
    assert cancel(current_job()) == 1
    if then == "raise":
        raise ValueError("after it")
    return then


@task(max_attempts=3, backoff=0)
async def acancel_itself(then: str) -> str:
    """Do the same. An async job is cancelled at its next await."""
    assert await acancel(current_job()) == 1
    if then == "raise":
        raise ValueError("after it")
    if then == "await":
        await asyncio.sleep(20)
    return then


def _delete_row(then: str) -> None:
    assert Job.objects.filter(pk=current_job().pk)._raw_delete("default") == 1
    if then == "raise":
        raise ValueError("after it")


@task(max_attempts=1)
def delete_own_row(then: str) -> None:
    """Delete its own job."""
    _delete_row(then)


@task(max_attempts=1)
async def adelete_own_row(then: str) -> None:
    await sync_to_async(_delete_row)(then)


@task(atomic=True, max_attempts=1)
def delete_own_row_in_atomic(then: str) -> None:
    Entry.objects.create(key=then)
    _delete_row(then)


@task
def delete_own_row_and_leave_it_open() -> None:
    """Run in a transaction that never ends by itself and locks the row."""
    transaction.atomic().__enter__()
    _delete_row("return")


@task(max_attempts=1)
def activate() -> None:
    """Change values of the current context."""
    translation.activate("ar")
    timezone.activate("Asia/Tokyo")
    decimal.getcontext().prec = 3


@task(max_attempts=1)
async def aactivate() -> None:
    activate.func()
    await sync_to_async(activate.func)()


@task(max_attempts=1)
def context() -> list[Any]:
    """Return the language, the time zone and the decimal precision."""
    return [translation.get_language(), timezone.get_current_timezone_name(), decimal.getcontext().prec]


@task(max_attempts=1)
async def acontext() -> list[Any]:
    return [*context.func(), *await sync_to_async(context.func)()]


@task(max_attempts=1)
def leave_thread(name: str) -> None:
    """Start a thread that outlives the job and uses it."""
    job = current_job()

    def work() -> None:
        gate(f"{name} runs").set()
        assert gate(name).wait(20)
        try:
            asked = [job.cancel_requested, job.wait_for_cancel(0), current_job().pk == job.pk]
            with transaction.atomic():
                Entry.objects.create(key=name)
        except BaseException as error:
            SEEN.append(error)
        else:
            SEEN.append(asked)
        finally:
            connection.close()
            gate(f"{name} ended").set()

    threading.Thread(target=copy_context().run, args=[work], daemon=True).start()
