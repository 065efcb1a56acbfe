"""The tasks that django-ox runs."""

from __future__ import annotations

from django.tasks import task

from benchmarks import marks
from benchmarks.models import Note


@task
def noop() -> None:
    """Do nothing, so that only the queue itself is measured."""
    marks.mark()


@task
def insert() -> None:
    """Insert one row."""
    Note(text="a note").save()
    marks.mark()


@task
def stamp(number: int) -> None:
    """Record when the job started."""
    marks.stamp(number)
    marks.mark()


@task
def wait() -> None:
    """Wait as long as the benchmark says."""
    marks.wait()
