"""What the benchmarks run."""

from __future__ import annotations

from django_pgqueue import task


@task
def noop() -> None:
    """Do nothing: what is left is the queue."""
