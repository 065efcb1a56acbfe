"""Procrastinate: jobs are claimed and finished one by one, by functions in the database."""

from __future__ import annotations

import os
from ast import literal_eval
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from benchmarks.marks import a_wait, mark, stamp as stamp_start

from .contract import Contestant, Kind, database_url

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["Procrastinate", "ProcrastinateBest"]

#: Jobs for each ``batch_defer()``. More are not faster.
CHUNK = 1000


class Procrastinate(Contestant):
    """``procrastinate.contrib.django``, as ``manage.py procrastinate worker`` runs it without options.

    No-op jobs, stamps and waits are coroutines, so that they need no threads. Jobs that use the ORM are
    functions: the asynchronous ORM would use one thread for all of them. Each of these connects, since
    ``CONN_MAX_AGE`` is 0.
    """

    name = "procrastinate"
    configuration = "1 job at a time"
    requirements = ("procrastinate[django]==3.10.0", "Django==6.1.3", "psycopg[binary,pool]==3.3.9")
    pace = 700
    insert_pace = 150
    slots = 1
    # It has a partial index with this condition.
    unfinished = "SELECT count(*) FROM procrastinate_jobs WHERE status IN ('todo', 'doing')"
    clear = """
        TRUNCATE
            procrastinate_jobs, procrastinate_events, procrastinate_periodic_defers, procrastinate_workers
    """
    # A worker sets worker_id to NULL in the jobs that it has finished when it stops.
    finished = """
        WITH job AS (
            INSERT INTO procrastinate_jobs (queue_name, task_name, status, attempts)
            SELECT 'default', 'noop', 'succeeded', 1
            FROM generate_series(1, %(jobs)s)
            RETURNING id
        )
        INSERT INTO procrastinate_events (job_id, type)
        SELECT job.id, type
        FROM job
        CROSS JOIN unnest(
            ARRAY['deferred', 'started', 'succeeded']::procrastinate_job_event_type[]
        ) AS type
    """

    def prepare(self) -> None:
        """Run its migrations."""
        set_up()
        from django.core.management import call_command

        call_command("migrate", verbosity=0)

    def fill(self, kind: Kind, jobs: int, **options: Any) -> None:
        """Enqueue with ``batch_defer``."""
        assert not options, options
        task = set_up()[kind]
        for first in range(0, jobs, CHUNK):
            numbers = range(first, min(first + CHUNK, jobs))
            task.batch_defer(*({"number": number} if kind == "stamp" else {} for number in numbers))

    @contextmanager
    def putting(self, kind: Kind) -> Iterator[Callable[[int], object]]:
        """Enqueue with ``defer`` over Django's connection, in autocommit mode.

        Its own connector checks the connection before each use, and needs 1.3 to 1.5 times as long.
        """
        task = set_up()[kind]
        from django.db import connection

        connection.ensure_connection()
        yield (lambda number: task.defer(number=number)) if kind == "stamp" else lambda number: task.defer()

    def preload(self) -> None:
        """Set Django up."""
        set_up()

    def work(self, slots: int) -> None:
        """Run a worker as its command does. It handles SIGTERM itself."""
        set_up()
        from procrastinate.contrib.django import app

        connector: Any = app.connector
        with app.replace_connector(connector.get_worker_connector()):
            app.run_worker(concurrency=slots)


class ProcrastinateBest(Procrastinate):
    """Many jobs at a time, a larger pool, and Django's connections are kept.

    The choices follow its pages on concurrency, the size of the pool, and Django:

    - Concurrency 10, with a pool of one connection more. 4 and 10 were about equal, and better than 1 and 20.
      Jobs that wait: concurrency 100, with a pool of 20.
    - ``CONN_MAX_AGE = None``, which its middleware respects.
    - Only jobs that use the ORM get that middleware. With it, which is the default of the Django integration,
      no-op jobs were 7 to 17 percent slower.
    - Jobs are kept (``delete_jobs="never"``), which is the default. ``always`` was 2 to 6 percent faster on a
      quiet machine, and slower on a busy one.
    - ``fetch_job_polling_interval`` keeps its default, since notifications wake the worker.
    """

    name = "procrastinate-best"
    configuration = "10 jobs at a time (100 that wait), a pool of 11 connections (20), `CONN_MAX_AGE = None`"
    environment = {"CONN_MAX_AGE": "None"}
    pace = 1_000
    insert_pace = 500
    slots = 100

    def workers(self, kind: Kind) -> list[list[str]]:
        """Run one process."""
        return self.working(1, self.slots if kind == "wait" else 10)

    def work(self, slots: int) -> None:
        """Run a worker as its page about scripts shows. It handles SIGTERM itself."""
        set_up()
        from procrastinate import PsycopgConnector
        from procrastinate.contrib.django import app
        from procrastinate.contrib.django.db_cleanup import close_db_connections

        size = min(slots + 1, 20)
        connector = PsycopgConnector(conninfo=database_url(), min_size=size, max_size=size)
        with app.replace_connector(connector):
            app.run_worker(concurrency=slots, task_middleware=[close_db_connections])


@cache
def set_up() -> dict[Kind, Any]:
    """Set Django up, and return the tasks."""
    import django
    from django.conf import settings

    url = urlsplit(database_url())
    settings.configure(
        INSTALLED_APPS=["procrastinate.contrib.django", "benchmarks"],
        DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
        PROCRASTINATE_AUTODISCOVER_MODULE_NAME=None,  # benchmarks.tasks are those of our queue
        DATABASES={
            "default": {
                "ENGINE": "django.db.backends.postgresql",
                "NAME": unquote(url.path[1:]),
                "USER": unquote(url.username or ""),
                "PASSWORD": unquote(url.password or ""),
                "HOST": unquote(url.hostname or ""),
                "PORT": url.port or "",
                "CONN_MAX_AGE": literal_eval(os.environ.get("CONN_MAX_AGE", "0")),
            }
        },
    )
    django.setup()
    from procrastinate.contrib.django import app

    from benchmarks.models import Note

    async def noop() -> None:
        mark()

    def insert() -> None:
        Note(text="a note").save()
        mark()

    async def stamp(number: int) -> None:
        stamp_start(number)
        mark()

    async def wait() -> None:
        await a_wait()

    return {
        "noop": app.task(name="noop")(noop),
        "insert": app.task(name="insert")(insert),
        "stamp": app.task(name="stamp")(stamp),
        "wait": app.task(name="wait")(wait),
    }
