"""Enqueue jobs in one open transaction until a line arrives: ``python -m benchmarks.loader``.

This is one call of ``enqueue_many``. The jobs are due tomorrow, so that no worker runs them. The program
prints a line after the first chunk, and after the commit how many jobs it has enqueued.
"""

from __future__ import annotations

import select
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django_pgqueue import BoundTask

CHUNK = 2_000


def main() -> None:
    """Enqueue until the other program sends a line."""
    import django

    django.setup()
    from django_pgqueue import enqueue_many

    print(len(enqueue_many(jobs())))


def jobs() -> Iterator[BoundTask]:
    """Yield calls until a line has arrived or the other program has ended."""
    from benchmarks.tasks import calls

    first = True
    while not select.select([sys.stdin], [], [], 0)[0]:
        yield from calls("noop", CHUNK, run_after=86_400)
        if first:
            print("loading", flush=True)
        first = False


if __name__ == "__main__":
    main()
