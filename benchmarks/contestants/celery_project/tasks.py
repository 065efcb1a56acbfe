"""The jobs, as tasks of Celery."""

from __future__ import annotations

from typing import Any

from celery import shared_task

from benchmarks import marks
from benchmarks.marks import mark, stamp as stamp_start
from benchmarks.models import Note

__all__ = ["KINDS", "insert", "noop", "stamp", "wait"]


@shared_task  # type: ignore[untyped-decorator]
def noop() -> None:
    """Do nothing."""
    mark()


@shared_task  # type: ignore[untyped-decorator]
def insert() -> None:
    """Insert one row."""
    Note(text="a note").save()
    mark()


@shared_task  # type: ignore[untyped-decorator]
def stamp(number: int) -> None:
    """Record when the job started."""
    stamp_start(number)
    mark()


@shared_task  # type: ignore[untyped-decorator]
def wait() -> None:
    """Wait as long as the benchmark says."""
    marks.wait()


KINDS: dict[str, Any] = {"noop": noop, "insert": insert, "stamp": stamp, "wait": wait}
