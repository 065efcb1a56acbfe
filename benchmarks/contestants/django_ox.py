"""django-ox: Django's tasks framework with a worker of its own.

It claims one task in one statement and writes one outcome in another, each in its own commit. The poll
interval is its default of one second, which decides its latency, since it has no notification.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from .contract import Contestant, Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["DjangoOx", "DjangoOxBest"]

COMMAND = (sys.executable, "-m", "django", "ox_worker")


class DjangoOx(Contestant):
    """``task.enqueue``, ``enqueue_many`` and ``manage.py ox_worker`` without options."""

    name = "django-ox"
    configuration = "1 job at a time"
    requirements = ("django-ox==1.9.1", "Django==6.1.3", "psycopg[binary]==3.3.9")
    environment = {"DJANGO_SETTINGS_MODULE": "benchmarks.contestants.django_ox_settings"}
    pace = 150
    insert_pace = 120
    slots = 1
    unfinished = "SELECT count(*) FROM django_ox_oxtask WHERE status IN ('READY', 'RUNNING')"
    clear = "TRUNCATE django_ox_oxtask, django_ox_oxscheduletick"
    finished = """
        INSERT INTO django_ox_oxtask (
            id, task_path, args, kwargs, queue_name, priority, takes_context, backend_name, status,
            attempts, max_attempts, errors, worker_ids,
            enqueued_at, started_at, last_attempted_at, finished_at, lease_epoch
        )
        SELECT gen_random_uuid(), 'benchmarks.contestants.django_ox_tasks.noop', '[]', '{}', 'default', 0,
            false, 'default', 'SUCCESSFUL', 1, 3, '[]', '["localhost-4711-Q2olNZXH-0"]',
            now(), now(), now(), now(), 1
        FROM generate_series(1, %(jobs)s)
    """

    def prepare(self) -> None:
        """Run the migrations."""
        from django.core.management import call_command

        _set_up()
        call_command("migrate", verbosity=0)

    def fill(self, kind: Kind, jobs: int, **options: Any) -> None:
        """Enqueue with ``enqueue_many``, in one transaction."""
        _set_up()
        from django_ox.bulk import enqueue_many

        empty: dict[str, object] = {}
        enqueue_many(_task(kind), (((number,) if kind == "stamp" else (), empty) for number in range(jobs)))

    @contextmanager
    def putting(self, kind: Kind) -> Iterator[Callable[[int], object]]:
        """Enqueue with ``enqueue``, in autocommit mode."""
        _set_up()
        from django.db import connection

        task = _task(kind)
        connection.ensure_connection()
        yield (lambda number: task.enqueue(number)) if kind == "stamp" else lambda number: task.enqueue()

    def preload(self) -> None:
        """Set Django up, and import the tasks."""
        _set_up()
        _task("noop")

    def workers(self, kind: Kind) -> list[list[str]]:
        """Run its own command."""
        return [[*COMMAND]]


class DjangoOxBest(DjangoOx):
    """Persistent connections, as its worker advises, and threads whose commits overlap.

    Each of two processes has four threads, of which one and eight were slower, and 16 for jobs that wait.
    """

    name = "django-ox-best"
    configuration = "2 processes of 4 threads (16 for jobs that wait), `CONN_MAX_AGE = 600`"
    environment = {**DjangoOx.environment, "CONN_MAX_AGE": "600"}
    pace = 900
    insert_pace = 500
    slots = 32

    def workers(self, kind: Kind) -> list[list[str]]:
        """Run its own command, which starts the processes."""
        threads = "16" if kind == "wait" else "4"
        return [[*COMMAND, "--verbosity", "0", "--processes", "2", "--concurrency", threads]]


def _task(kind: Kind) -> Any:
    from . import django_ox_tasks

    return getattr(django_ox_tasks, kind)


def _set_up() -> None:
    import django

    django.setup()
