"""The jobs, as tasks of Django."""

from __future__ import annotations

from typing import Any

from django.tasks import task

from benchmarks import marks
from benchmarks.marks import mark, stamp as stamp_start
from benchmarks.models import Note

__all__ = ["KINDS", "insert", "noop", "stamp", "wait"]


@task
def noop() -> None:
    """Do nothing."""
    mark()


@task
def insert() -> None:
    """Insert one row."""
    Note(text="a note").save()
    mark()


@task
def stamp(number: int) -> None:
    """Record when the job started."""
    stamp_start(number)
    mark()


@task
def wait() -> None:
    """Wait as long as the benchmark says."""
    marks.wait()


KINDS: dict[str, Any] = {"noop": noop, "insert": insert, "stamp": stamp, "wait": wait}
