"""This project's queue, with its defaults, and as its page about sizing advises."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from .contract import Contestant, Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

__all__ = ["Ours", "OursAgain", "OursBest", "set_up"]


class Ours(Contestant):
    """``enqueue``, ``enqueue_many`` and ``manage.py runqueueworker``."""

    name = "django_pgqueue"
    configuration = "4 threads"
    environment = {"DJANGO_SETTINGS_MODULE": "benchmarks.settings"}
    pace = 45_000
    insert_pace = 4_000
    wait_pace = 15_000
    slots = 4
    scenarios = Contestant.scenarios | {"enqueue"}
    unfinished = "SELECT count(*) FROM pgqueue_job_live"
    clear = "TRUNCATE pgqueue_job, pgqueue_stat, pgqueue_worker"
    finished = """
        INSERT INTO pgqueue_job (
            shelf, status, task_path, attempts, started_at, last_attempted_at, finished_at
        )
        SELECT (SELECT current FROM pgqueue_ring), 'done', 'benchmarks.tasks.noop', 1, now(), now(), now()
        FROM generate_series(1, %(jobs)s)
    """

    def prepare(self) -> None:
        """Run the migrations."""
        from django.core.management import call_command

        set_up()
        call_command("migrate", verbosity=0)

    def preload(self) -> None:
        """Set Django up."""
        set_up()
        from benchmarks import tasks  # noqa: F401

    def workers(self, kind: Kind) -> list[list[str]]:
        """Run one worker command without options."""
        return [[sys.executable, "-m", "django", "runqueueworker"]]

    def fill(self, kind: str, jobs: int, **options: Any) -> None:
        """Enqueue with ``enqueue_many``."""
        set_up()
        from benchmarks import tasks
        from django_pgqueue import enqueue_many

        enqueue_many(tasks.calls(kind, jobs, **options))

    @contextmanager
    def putting(self, kind: Kind) -> Iterator[Callable[[int], object]]:
        """Enqueue with ``enqueue``, in autocommit mode."""
        set_up()
        from django.db import connection

        from benchmarks import tasks
        from django_pgqueue import enqueue

        task: Any = tasks.KINDS[kind]
        connection.ensure_connection()
        yield (lambda number: enqueue(task, number)) if kind == "stamp" else lambda number: enqueue(task)

    def commands(self, processes: int, threads: int, options: Sequence[str]) -> list[list[str]]:
        """Run one worker command."""
        counts = ("--processes", str(processes), "--threads", str(threads))
        return [[sys.executable, "-m", "django", "runqueueworker", "--verbosity", "0", *counts, *options]]


class OursBest(Ours):
    """A process for each CPU, and slots for async jobs, as PgQueuer, Oban and Awa run coroutines only."""

    name = "django_pgqueue-best"
    configuration = "2 processes of 4 threads and 500 async slots; jobs that wait are coroutines"
    pace = 70_000
    wait_pace = 20_000
    slots = 1_000

    def fill(self, kind: str, jobs: int, **options: Any) -> None:
        """Enqueue with ``enqueue_many``. Jobs that wait are async."""
        super().fill("a_wait" if kind == "wait" else kind, jobs, **options)

    def workers(self, kind: Kind) -> list[list[str]]:
        """Run one worker command."""
        return self.commands(2, 4, ("--async-slots", "500"))


class OursAgain(Ours):
    """The same in a database of its own: for rows that stay over all runs, and for a load that only shares
    the machine. It takes part in no scenario by itself.
    """

    name = "django_pgqueue-2"
    scenarios = frozenset()


def set_up() -> None:
    import django

    django.setup()
