"""django-tasks-db: the backend for Django's tasks that stores them with the ORM."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from .contract import Contestant, Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["DjangoTasksDb", "DjangoTasksDbBest"]

TABLE = "django_tasks_database_dbtaskresult"
COMMAND = (sys.executable, "-m", "django", "db_worker")


class DjangoTasksDb(Contestant):
    """``task.enqueue()`` and ``manage.py db_worker``.

    Django 6.0 is the newest version that it declares to support. An idle worker looks for jobs once every
    second, and a job opens a connection (``CONN_MAX_AGE = 0``), as does each look of the worker.
    """

    name = "django-tasks-db"
    requirements = (
        "django-tasks-db==0.13.0",
        "Django==6.0.10",
        "django-environ==0.14.0",
        "psycopg[binary]==3.3.9",
    )
    configuration = "1 job at a time"
    environment = {"DJANGO_SETTINGS_MODULE": "benchmarks.contestants.django_tasks_db_project.settings"}
    pace = 120
    insert_pace = 120
    slots = 1
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

    def preload(self) -> None:
        """Set Django up."""
        set_up()
        from .django_tasks_db_project.tasks import KINDS  # noqa: F401

    def workers(self, kind: Kind) -> list[list[str]]:
        """Run one command without options."""
        return [[*COMMAND]]


class DjangoTasksDbBest(DjangoTasksDb):
    """Connections are kept, and several workers run.

    Its documentation gives no advice on throughput, so these are our choices, to its advantage:

    - ``CONN_MAX_AGE = None``: persistent connections, as Django's documentation describes them. The worker
      closes expired connections before and after each job.
    - A worker runs one job at a time, in one thread, so several commands run: a process for each core for
      no-op jobs, four for inserts, and eight for jobs that wait.
    - It logs nothing, and a worker does not wait for a random time before it starts.
    """

    name = "django-tasks-db-best"
    configuration = "2 commands (4 for inserts, 8 for jobs that wait), `CONN_MAX_AGE = None`"
    environment = {**DjangoTasksDb.environment, "CONN_MAX_AGE": "None"}
    pace = 800
    insert_pace = 600
    slots = 8
    starting = 0.6

    def workers(self, kind: Kind) -> list[list[str]]:
        """Run one command for each job that may run at the same time."""
        count = {"insert": 4, "wait": self.slots}.get(kind, 2)
        return [[*COMMAND, "--verbosity", "0", "--no-startup-delay"]] * count


def set_up() -> None:
    import django

    django.setup()
