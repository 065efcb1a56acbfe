"""The jobs, as tasks of Celery."""

from __future__ import annotations

from typing import Any

from celery import shared_task

from benchmarks.marks import mark
from benchmarks.marks import stamp as stamp_start
from benchmarks.models import Note

__all__ = ["KINDS", "insert", "noop", "stamp"]


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


KINDS: dict[str, Any] = {"noop": noop, "insert": insert, "stamp": stamp}
