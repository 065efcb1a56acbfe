"""Awa: a queue in Rust whose workers call Python.

The configuration that its documentation recommends for throughput:

- ``PartitionedQueue``: one logical queue as four, whose claims and completions do not wait for each other. It
  was a third faster here than one queue, and faster than without deadlines for jobs.
- Many jobs at a time (``max_workers``). From 512 on, a process completes jobs in four parallel batches.
- A pool of 4 connections for each queue, and 20 more.
- ``enqueue_many_copy`` to enqueue many jobs, ``insert`` for one.
"""

from __future__ import annotations

import asyncio
import signal
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from benchmarks.marks import mark, stamp

from .contract import Contestant, Kind, database_url

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["Awa"]

PARTITIONS = 4
AT_A_TIME = 256  # in each partition
CONNECTIONS = 36


@dataclass
class Noop:
    """The arguments of ``noop``."""


@dataclass
class Insert:
    """The arguments of ``insert``."""


@dataclass
class Stamp:
    """The arguments of ``stamp``."""

    number: int


class Awa(Contestant):
    """``insert``, ``enqueue_many_copy`` and a worker with the asynchronous client."""

    name = "awa"
    requirements = ("awa-pg==0.6.9", "psycopg[binary]==3.3.9", "psycopg-pool==3.3.3")
    # It keeps completed jobs only until their part of a ring is used again, after about 16 seconds. So it has
    # no history that could make it slower, and does not take part in ``finished``.
    scenarios = frozenset({"drain", "inserts", "latency", "enqueue", "bulk", "snapshot"})
    pace = 8_000
    # Its own view of all jobs takes seconds. A completed job stays in ready_entries, and is an element of a
    # batch of completions, until both are truncated together.
    unfinished = """
        SELECT (SELECT count(*) FROM awa.ready_entries)
            - (SELECT coalesce(sum(completed_count), 0) FROM awa.receipt_completion_batches)
            - (SELECT count(*) FROM awa.done_entries)
    """

    def prepare(self) -> None:
        """Create its tables. The first worker of an installation makes its current storage the active one."""

        async def run() -> None:
            client = _client()
            await client.migrate()
            await _start(client)
            await client.shutdown()
            await client.close()

        asyncio.run(run())

    def empty(self) -> None:
        """Create its tables again."""

        async def run() -> None:
            client = _client()
            await client.install_queue_storage(schema="awa", reset=True)
            await client.close()

        asyncio.run(run())

    def fill(self, kind: Kind, jobs: int, **options: Any) -> None:
        """Enqueue with ``enqueue_many_copy``."""
        make = _maker(kind)

        async def run() -> None:
            client, partitions = _client(), _partitions()
            await client.enqueue_many_copy(
                [make(number) for number in range(jobs)],
                opts=[partitions.route_by_index(number) for number in range(jobs)],
            )
            await client.close()

        asyncio.run(run())

    @contextmanager
    def putting(self, kind: Kind) -> Iterator[Callable[[int], object]]:
        """Enqueue with ``insert``, which commits."""
        make, partitions = _maker(kind), _partitions()
        with asyncio.Runner() as runner:
            client = runner.run(_opened())

            async def put(number: int) -> None:
                await client.insert(make(number), **partitions.route_by_index(number))

            wait_for = runner.get_loop().run_until_complete
            yield lambda number: wait_for(put(number))
            runner.run(client.close())

    def work(self, threads: int) -> None:
        """Run jobs until SIGTERM."""
        asyncio.run(_work())


async def _work() -> None:
    from psycopg_pool import AsyncConnectionPool

    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    client = _client()
    # The application's own connections, in autocommit mode: Awa's are for its transactions.
    async with AsyncConnectionPool(
        database_url(), min_size=10, max_size=10, open=False, kwargs={"autocommit": True}
    ) as pool:

        async def insert(job: Any) -> None:
            async with pool.connection() as connection:
                await connection.execute("INSERT INTO note (text) VALUES ('a note')")
            mark()

        client.task(Insert, queue="default")(insert)
        await _start(client)
        await stopped.wait()
        await client.shutdown()
        await client.close()


async def _noop(job: Any) -> None:
    mark()


async def _stamp(job: Any) -> None:
    stamp(job.args.number)
    mark()


async def _start(client: Any) -> None:
    # A task belongs to all partitions, whichever queue is named here.
    client.task(Noop, queue="default")(_noop)
    client.task(Stamp, queue="default")(_stamp)
    await client.start(_partitions().queue_configs(max_workers_per_partition=AT_A_TIME))


async def _opened() -> Any:
    client = _client()
    await client.health_check()
    return client


def _maker(kind: Kind) -> Callable[[int], Any]:
    """Return a function that makes the arguments of the job with a number."""
    if kind == "stamp":
        return Stamp
    job = Noop if kind == "noop" else Insert
    return lambda number: job()


def _partitions() -> Any:
    from awa import PartitionedQueue

    return PartitionedQueue("default", PARTITIONS)


def _client() -> Any:
    from awa import AsyncClient

    return AsyncClient(database_url(), max_connections=CONNECTIONS)
