"""Celery with Redis as its broker."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from .contract import CannotTakePartError, Contestant, Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

__all__ = ["Celery"]

APP = "benchmarks.contestants.celery_project.app"
START_SECONDS = 10


class Celery(Contestant):
    """``task.delay()`` and ``celery worker``, in a Django project.

    **It is not durable**, and our queue is. Redis has its default configuration, as most users of Celery run
    it: it answers before anything is on disk, and its first snapshot comes after a minute at the earliest. If
    Redis or the machine crashes, the jobs since the last snapshot are lost. Celery's default is to
    acknowledge a job before it runs, so the job that is running is lost if its worker is killed.

    The choices, from Celery's guide to optimizing where it has advice:

    - A prefetch multiplier of 128, for many short tasks. Acknowledging early is the default, and the fastest.
    - No result backend, no results (``ignore_result``), no rate limits, and no messages between workers.
    - The prefork pool, with one child process for each job that may run at the same time. The parent, which
      talks to Redis, is one process more than others have.
    - redis-py with hiredis, as redis-py's documentation advises.
    - Django's default settings for the database. Celery closes the connections before and after each task,
      whatever ``CONN_MAX_AGE`` is, so a task that uses the database opens a new one.
    """

    name = "celery"
    requirements = (
        "celery[redis]==5.7.0",
        "kombu==5.7.0",
        "redis[hiredis]==8.1.0",
        "Django==6.1.3",
        "django-environ==0.14.0",
        "psycopg[binary]==3.3.9",
    )
    environment = {"DJANGO_SETTINGS_MODULE": "benchmarks.contestants.celery_project.settings"}
    # The other scenarios are about PostgreSQL.
    scenarios = frozenset({"drain", "inserts", "latency", "enqueue", "bulk"})
    pace = 1_300
    insert_pace = 200

    @contextmanager
    def services(self, folder: Path) -> Iterator[Mapping[str, str]]:
        """Start Redis on a free port."""
        program = shutil.which("redis-server")
        if program is None:
            raise CannotTakePartError("there is no redis-server: apt install redis-server")
        port = free_port()
        with (folder / "redis.log").open("wb") as log:
            redis = subprocess.Popen(
                [program, "--bind", "127.0.0.1", "--port", str(port), "--dir", str(folder)],
                stdout=log,
                stderr=log,
            )
        try:
            wait_for(redis, port, folder / "redis.log")
            yield {"CELERY_BROKER_URL": f"redis://127.0.0.1:{port}/0"}
        finally:
            redis.kill()  # its data is not needed: it need not write a snapshot
            redis.wait()

    def prepare(self) -> None:
        """Do nothing: its queue is not in PostgreSQL."""

    def empty(self) -> None:
        """Remove all jobs, also those that a worker had fetched."""
        app = application()
        with app.connection_for_write() as connection:
            connection.default_channel.client.flushdb()

    def fill(self, kind: Kind, jobs: int, **options: Any) -> None:
        """Enqueue over one connection. A ``group`` also sends one message for each task."""
        app = application()
        from .celery_project.tasks import KINDS

        task = KINDS[kind]
        with app.producer_pool.acquire(block=True) as producer:
            for number in range(jobs):
                task.apply_async([number] if kind == "stamp" else [], producer=producer)

    @contextmanager
    def putting(self, kind: Kind) -> Iterator[Callable[[int], object]]:
        """Enqueue with ``delay``, which takes a connection from Celery's pool."""
        app = application()
        from .celery_project.tasks import KINDS

        task = KINDS[kind]
        with app.producer_pool.acquire(block=True) as producer:
            producer.connection.ensure_connection()
        yield (lambda number: task.delay(number)) if kind == "stamp" else lambda number: task.delay()

    def commands(self, processes: int, threads: int, options: Sequence[str]) -> list[list[str]]:
        """Run one worker, with one child process for each job that may run at the same time."""
        pool = ("--pool", "prefork", "--concurrency", str(processes * threads))
        alone = ("--without-gossip", "--without-mingle", "--without-heartbeat")
        return [["celery", "--app", APP, "worker", *pool, *alone, *options]]


def application() -> Any:
    import django

    django.setup()
    from .celery_project.app import app

    return app


def free_port() -> int:
    with socket.socket() as any_port:
        any_port.bind(("127.0.0.1", 0))
        port: int = any_port.getsockname()[1]
    return port


def wait_for(redis: subprocess.Popen[bytes], port: int, log: Path) -> None:
    """Return when Redis answers."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and redis.poll() is None:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=1) as client:
                client.sendall(b"PING\r\n")
                if client.recv(7) == b"+PONG\r\n":
                    return
        except OSError:
            time.sleep(0.02)
    raise CannotTakePartError(f"redis-server does not answer: {log.read_text(errors='replace')[-500:]}")
