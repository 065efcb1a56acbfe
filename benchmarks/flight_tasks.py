"""The tasks of ``benchmarks.in_flight``: sync and async ones that use the database in every way."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from asgiref.sync import sync_to_async
from django.db import transaction

from django_pgqueue import task

from .models import Note

if TYPE_CHECKING:
    from django_pgqueue import Task

__all__ = ["KINDS", "a_nap", "nap"]

PAUSE = 0.01  # seconds


def write() -> None:
    """Insert a row."""
    Note(text="a note").save()


@task
def sync() -> None:
    """Use the ORM on a job thread."""
    write()


@task
async def async_orm() -> None:
    """Use the ORM before and after a wait."""
    note = Note(text="a note")
    await note.asave()
    await asyncio.sleep(PAUSE)
    note.text = "another"
    await note.asave()


@task
async def async_atomic() -> None:
    """Use a transaction."""
    await sync_to_async(transaction.atomic(write))()


@task
async def in_other_threads() -> None:
    """Use the ORM where Django does not expect it, and leave the connection open."""
    await asyncio.to_thread(write)


@task
async def not_sensitive() -> None:
    """Do the same with asgiref."""
    await sync_to_async(write, thread_sensitive=False)()


@task
def nap(seconds: float) -> None:
    """Wait on a thread."""
    time.sleep(seconds)


@task
async def a_nap(seconds: float) -> None:
    """Wait on the event loop."""
    await asyncio.sleep(seconds)


KINDS: tuple[Task[[], None], ...] = (sync, async_orm, async_atomic, in_other_threads, not_sensitive)
