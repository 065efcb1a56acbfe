"""Celery: with its default broker, RabbitMQ, and with Redis."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .contract import CannotTakePartError, Contestant, Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

__all__ = ["Celery", "CeleryBest"]

APP = "benchmarks.contestants.celery_project.app"
START_SECONDS = 60
RABBITMQ = Path(
    "/usr/lib/rabbitmq/bin/rabbitmq-server"
)  # the program itself: the one in PATH changes the user


class Celery(Contestant):
    """``task.delay()`` and ``celery worker`` without options, in a Django project.

    RabbitMQ is the broker that Celery uses unless it is given another one, with persistent messages, which
    is the default, too. Messages are acknowledged before a job runs, so the jobs that are running are lost
    if their worker is killed. There is no result backend. A job that uses the database opens a new
    connection, because Celery closes them before and after each task, whatever ``CONN_MAX_AGE`` is.
    """

    name = "celery"
    configuration = "RabbitMQ, a process for each core"
    requirements = (
        "celery[redis]==5.7.0",
        "kombu==5.7.0",
        "redis[hiredis]==8.1.0",
        "gevent==26.9.0",
        "Django==6.1.3",
        "django-environ==0.14.0",
        "psycopg[binary]==3.3.9",
    )
    environment = {"DJANGO_SETTINGS_MODULE": "benchmarks.contestants.celery_project.settings"}
    # It keeps no history, unless there is a result backend.
    scenarios = frozenset({"drain", "inserts", "latency", "producers", "bulk"})
    pace = 1_000
    insert_pace = 150
    slots = 2

    def service(self) -> str:
        """Return the version of RabbitMQ, which is in the name of its folder."""
        folders = [path.name for path in RABBITMQ.parent.parent.glob("lib/rabbitmq_server-*")]
        return "".join(folders).replace("rabbitmq_server-", "RabbitMQ ")

    @contextmanager
    def services(self, folder: Path) -> Iterator[Mapping[str, str]]:
        """Start RabbitMQ on free ports, with its files in this folder."""
        if not RABBITMQ.exists():
            raise CannotTakePartError("there is no rabbitmq-server: apt install rabbitmq-server")
        port, names = free_port(), str(free_port())
        environment = {
            **os.environ,
            "HOME": str(folder),
            "RABBITMQ_NODENAME": f"benchmark{port}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(port),
            "RABBITMQ_DIST_PORT": str(free_port()),
            "ERL_EPMD_PORT": names,
            "ERL_EPMD_RELAXED_COMMAND_CHECK": "true",  # it ends although it still knows the killed node
            "RABBITMQ_MNESIA_BASE": str(folder),
            "RABBITMQ_LOG_BASE": str(folder),
            "RABBITMQ_CONFIG_FILE": str(folder / "none"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
            # Its idle threads shall not take a core from the other contestants.
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+sbwt none +sbwtdcpu none +sbwtdio none",
        }
        try:
            with broker([str(RABBITMQ)], environment, port, b"AMQP\0\0\0\0", folder / "rabbitmq.log"):
                yield {"CELERY_BROKER_URL": f"amqp://guest:guest@127.0.0.1:{port}//"}
        finally:
            subprocess.run(["epmd", "-port", names, "-kill"], capture_output=True, check=False)

    def prepare(self) -> None:
        """Do nothing: its queue is not in PostgreSQL."""

    def empty(self) -> None:
        """Remove all jobs."""
        application().control.purge()

    def preload(self) -> None:
        """Set Django up, and import the tasks."""
        application()
        from .celery_project.tasks import KINDS  # noqa: F401

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

    def workers(self, kind: Kind) -> list[list[str]]:
        """Run its command without options."""
        return [["celery", "--app", APP, "worker"]]


class CeleryBest(Celery):
    """Redis, a larger prefetch, kept connections, and green threads for jobs that wait.

    **It is not durable**, and our queue is. Redis has its default configuration, as most users of Celery run
    it: it answers before anything is on disk, and its first snapshot comes after a minute at the earliest. If
    Redis or the machine crashes, the jobs since the last snapshot are lost.

    The choices, from Celery's guides to optimizing and concurrency where they have advice:

    - A prefetch multiplier of 128, for many short tasks.
    - No results (``ignore_result``), no rate limits, and no messages between workers.
    - The prefork pool with a child process for each core, and four for jobs that use the database. The
      parent, which talks to Redis, is one process more. Jobs that wait: gevent, with 500 at a time.
    - redis-py with hiredis, as redis-py's documentation advises.
    - ``CELERY_DB_REUSE_MAX``: a process keeps its database connection for so many jobs.
    """

    name = "celery-best"
    configuration = (
        "Redis, not durable; 2 processes (4 for inserts, 500 green threads for jobs that wait), prefetch 128,"
        " `CELERY_DB_REUSE_MAX`"
    )
    environment = {**Celery.environment, "BENCHMARK_BEST": "1"}
    pace = 1_500
    insert_pace = 900
    slots = 500

    def service(self) -> str:
        """Return the version of Redis."""
        done = subprocess.run(["redis-server", "--version"], capture_output=True, text=True, check=False)
        return " ".join(re.findall(r"^(Redis) server v=(\S+)", done.stdout)[0])

    @contextmanager
    def services(self, folder: Path) -> Iterator[Mapping[str, str]]:
        """Start Redis on a free port."""
        program = shutil.which("redis-server")
        if program is None:
            raise CannotTakePartError("there is no redis-server: apt install redis-server")
        port = free_port()
        command = [program, "--bind", "127.0.0.1", "--port", str(port), "--dir", str(folder)]
        with broker(command, os.environ, port, b"PING\r\n", folder / "redis.log"):
            yield {"CELERY_BROKER_URL": f"redis://127.0.0.1:{port}/0"}

    def empty(self) -> None:
        """Remove all jobs, also those that a worker had fetched."""
        with application().connection_for_write() as connection:
            connection.default_channel.client.flushdb()

    def workers(self, kind: Kind) -> list[list[str]]:
        """Run one command."""
        alone = ("--without-gossip", "--without-mingle", "--without-heartbeat", "--loglevel", "ERROR")
        pool = ("gevent", self.slots) if kind == "wait" else ("prefork", 4 if kind == "insert" else 2)
        return [["celery", "--app", APP, "worker", "--pool", pool[0], "--concurrency", str(pool[1]), *alone]]


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


@contextmanager
def broker(
    command: Sequence[str], environment: Mapping[str, str], port: int, hello: bytes, log: Path
) -> Iterator[None]:
    """Run a broker. Its data is not needed afterwards, so it is killed."""
    with log.open("wb") as file:
        process = subprocess.Popen(command, env=environment, stdout=file, stderr=file, start_new_session=True)
    try:
        wait_for(process, port, hello, log)
        yield
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def wait_for(process: subprocess.Popen[bytes], port: int, hello: bytes, log: Path) -> None:
    """Return when the broker answers."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=1) as client:
                client.sendall(hello)
                if client.recv(7):
                    return
        except OSError:
            time.sleep(0.02)
    raise CannotTakePartError(f"the broker does not answer: {log.read_text(errors='replace')[-500:]}")
