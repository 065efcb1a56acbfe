"""django-tasks-db: the backend for Django's tasks that stores them with the ORM."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from .contract import Contestant, Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

__all__ = ["DjangoTasksDb", "DjangoTasksDbBusy"]

TABLE = "django_tasks_database_dbtaskresult"


class DjangoTasksDb(Contestant):
    """``task.enqueue()`` and ``manage.py db_worker``.

    Django 6.0 is the newest version that it declares to support. Its documentation gives no advice on
    throughput, so these are our choices, to its advantage:

    - A worker runs one job at a time, in one thread. Where others run several threads, it runs as many
      commands.
    - ``CONN_MAX_AGE = None``: persistent connections, as Django's documentation describes them. The worker
      closes expired connections before and after each job. With Django's default, 0, it opens a new one
      each time, and is four times slower.
    - It logs nothing, and a worker does not wait for a random time before it starts.
    - ``--interval`` has its default: an idle worker looks for jobs once every second.
    """

    name = "django-tasks-db"
    requirements = (
        "django-tasks-db==0.13.0",
        "Django==6.0.10",
        "django-environ==0.14.0",
        "psycopg[binary]==3.3.9",
    )
    environment = {
        "DJANGO_SETTINGS_MODULE": "benchmarks.contestants.django_tasks_db_project.settings",
        "CONN_MAX_AGE": "None",
    }
    pace = 450
    insert_pace = 500
    # No index helps to find the jobs that are running, so this takes about 70 ms beside a million finished
    # ones. A drain asks only after the last job has left its mark.
    unfinished = f"SELECT count(*) FROM {TABLE} WHERE status IN ('READY', 'RUNNING')"
    clear = f"TRUNCATE {TABLE}"
    finished = f"""
        INSERT INTO {TABLE} (
            id, status, enqueued_at, started_at, finished_at, args_kwargs, priority, task_path, worker_ids,
            queue_name, backend_name, run_after, return_value, exception_class_path, traceback
        )
        SELECT
            gen_random_uuid(), 'SUCCESSFUL', now(), now(), now(), '{{"args": [], "kwargs": {{}}}}', 0,
            'benchmarks.contestants.django_tasks_db_project.tasks.noop',
            '["{"w" * 32}"]', 'default', 'default', '9999-01-01 00:00+00', NULL, '', ''
        FROM generate_series(1, %(jobs)s)
    """

    def prepare(self) -> None:
        """Run the migrations."""
        from django.core.management import call_command

        set_up()
        call_command("migrate", verbosity=0)

    def fill(self, kind: Kind, jobs: int, **options: Any) -> None:
        """Enqueue in one transaction. There is no way to enqueue several tasks at once."""
        set_up()
        from django.db import transaction

        from .django_tasks_db_project.tasks import KINDS

        task = KINDS[kind]
        with transaction.atomic():
            for number in range(jobs):
                task.enqueue(*([number] if kind == "stamp" else []))

    @contextmanager
    def putting(self, kind: Kind) -> Iterator[Callable[[int], object]]:
        """Enqueue with ``enqueue``, in autocommit mode."""
        set_up()
        from django.db import connection

        from .django_tasks_db_project.tasks import KINDS

        task = KINDS[kind]
        connection.ensure_connection()
        yield (lambda number: task.enqueue(number)) if kind == "stamp" else lambda number: task.enqueue()

    def commands(self, processes: int, threads: int, options: Sequence[str]) -> list[list[str]]:
        """Run one command for each job that may run at the same time."""
        command = [sys.executable, "-m", "django", "db_worker", "--verbosity", "0", "--no-startup-delay"]
        return [[*command, *options] for _ in range(processes * threads)]


class DjangoTasksDbBusy(DjangoTasksDb):
    """The smallest interval: an idle worker looks for jobs all the time, and keeps one processor busy."""

    name = "django-tasks-db-0"
    scenarios = frozenset({"latency"})

    def commands(self, processes: int, threads: int, options: Sequence[str]) -> list[list[str]]:
        """Run the same commands without a pause."""
        return super().commands(processes, threads, ("--interval", "0", *options))


def set_up() -> None:
    import django

    django.setup()
