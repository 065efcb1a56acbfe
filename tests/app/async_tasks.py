"""Async tasks that run in great numbers, and that hold something on their thread between two calls."""

from __future__ import annotations

import asyncio
import threading
from contextvars import ContextVar
from typing import Any

from asgiref.sync import async_to_sync, sync_to_async
from django.db import connection, transaction

from django_pgqueue import current_job, task

from .models import Entry
from .worker_tasks import SEEN, ask, gate, open_gate

#: The jobs that have met, and the event that they wait for on their loop.
MEETING: dict[str, Any] = {"count": 0, "event": None}
FLAVOR: ContextVar[str] = ContextVar("flavor")


@task
async def meet_between_queries(count: int) -> None:
    """Use the ORM, wait until as many jobs are in flight, and use it again."""
    entry = await Entry.objects.acreate(key=f"job {current_job().pk}")
    MEETING["event"] = MEETING["event"] or asyncio.Event()
    MEETING["count"] += 1
    if MEETING["count"] == count:
        names = [thread.name for thread in threading.enumerate()]
        threads = sum(name.startswith("pgqueue-sync") for name in names)
        SEEN.append((await sync_to_async(_sessions)(), threads))
        MEETING["event"].set()
    await MEETING["event"].wait()
    entry.note = str(current_job().pk)
    await entry.asave()


def _sessions() -> int:
    query = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
    return int(ask(f"{query} AND backend_type = 'client backend'")[0])


@task
async def sleep_forever() -> None:
    SEEN.append(current_job().pk)
    await asyncio.sleep(600)


@task
async def keep(kind: str) -> list[Any]:
    """Keep something on the thread while the test runs another job, then use it."""
    async with asyncio.timeout(30):
        kept = await sync_to_async(_take)(kind)
        gate("kept").set()
        await open_gate("go on")
        return await sync_to_async(_use)(kind, kept)


def _take(kind: str) -> Any:
    if kind == "transaction":
        transaction.atomic().__enter__()
        Entry.objects.create(key="kept")
    elif kind == "closed in a transaction":
        transaction.atomic().__enter__()
        connection.close()
    elif kind == "setting":
        ask("SET application_name = 'kept'")
    elif kind == "cursor":
        cursor = connection.cursor()
        cursor.execute("SELECT 1")
        return cursor
    elif kind == "iterator":
        rows = Entry.objects.order_by("key").values_list("key", flat=True).iterator(chunk_size=1)
        return rows, [next(rows)]
    return None


def _use(kind: str, kept: Any) -> list[Any]:
    if kind == "iterator":
        rows, found = kept
        return [*found, *rows]
    if kind == "closed in a transaction":
        return [connection.closed_in_transaction]
    with kept or connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid(), current_setting('application_name')")
        _, name = cursor.fetchone()
    if kind == "transaction":
        transaction.set_rollback(True)
    return [name]


@task
async def clean_up(name: str) -> str:
    """Do not let the cancellation pass, and use the database after it."""
    try:
        gate(f"{name} runs").set()
        await asyncio.sleep(600)
    except asyncio.CancelledError:
        await Entry.objects.acreate(key="cleaned up")
    return "went on"


@task
async def use_the_orm() -> list[Any]:
    """Use everything that Django offers to async code, and go back and forth between async and sync."""
    await Entry.objects.abulk_create([Entry(key=key) for key in "ab"])
    entry, _ = await Entry.objects.aupdate_or_create(key="c", defaults={"note": "new"})
    await entry.arefresh_from_db()
    listed = [each.key async for each in Entry.objects.order_by("key")]
    streamed = [each.key async for each in Entry.objects.order_by("key").aiterator(chunk_size=1)]

    @transaction.atomic
    def change() -> str:
        entry.note = "changed"
        async_to_sync(entry.asave)()  # in the same thread, and so in the same transaction
        note = Entry.objects.get(key="c").note
        transaction.set_rollback(True)
        return note

    inside = await sync_to_async(change)()
    outside = (await Entry.objects.aget(key="c")).note
    return [listed, streamed, inside, outside, await Entry.objects.acount()]


@task
async def in_a_thread() -> int:
    """Use the database in a thread of the loop, and leave the connection open."""
    return await asyncio.to_thread(_sessions)


@task
async def isolated(value: str) -> list[Any]:
    """Set context variables here and in threads, and return what this job sees while others do the same."""
    before = FLAVOR.get("none")
    FLAVOR.set(value)
    MEETING["count"] += 1
    while MEETING["count"] < 2:
        await asyncio.sleep(0.001)
    in_sync = await sync_to_async(FLAVOR.get)()
    in_thread = await asyncio.to_thread(FLAVOR.get)
    await sync_to_async(FLAVOR.set)(f"{value} again")
    return [before, in_sync, in_thread, FLAVOR.get()]
