"""Awa: a queue in Rust whose workers call Python.

Its first example has 4 workers for one queue. What its documentation recommends for throughput:

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
from typing import TYPE_CHECKING, Any, ClassVar

from benchmarks.marks import a_wait, mark, stamp

from .contract import Contestant, Kind, database_url

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

__all__ = ["Awa", "AwaBest"]

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
class Wait:
    """The arguments of ``wait``."""


@dataclass
class Stamp:
    """The arguments of ``stamp``."""

    number: int


class Awa(Contestant):
    """``insert``, ``enqueue_many_copy`` and a worker with the asynchronous client."""

    name = "awa"
    configuration = "4 coroutines"
    partitions: ClassVar[int] = 0
    connections: ClassVar[Mapping[str, int]] = {}
    requirements = ("awa-pg==0.6.9", "psycopg[binary]==3.3.9", "psycopg-pool==3.3.3")
    # It keeps completed jobs only until their part of a ring is used again, after about 16 seconds. So it has
    # no history that could make it slower.
    scenarios = frozenset({"drain", "inserts", "latency", "producers", "bulk"})
    pace = 1_000
    insert_pace = 600
    slots = 4
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
            client = self._client()
            await client.migrate()
            await self._start(client, 1)
            await client.shutdown()
            await client.close()

        asyncio.run(run())

    def empty(self) -> None:
        """Create its tables again."""

        async def run() -> None:
            client = self._client()
            await client.install_queue_storage(schema="awa", reset=True)
            await client.close()

        asyncio.run(run())

    def fill(self, kind: Kind, jobs: int, **options: Any) -> None:
        """Enqueue with ``enqueue_many_copy``."""
        make, route = _maker(kind), self._route()

        async def run() -> None:
            client = self._client()
            await client.enqueue_many_copy(
                [make(number) for number in range(jobs)], opts=[route(number) for number in range(jobs)]
            )
            await client.close()

        asyncio.run(run())

    @contextmanager
    def putting(self, kind: Kind) -> Iterator[Callable[[int], object]]:
        """Enqueue with ``insert``, which commits."""
        make, route = _maker(kind), self._route()
        with asyncio.Runner() as runner:
            client = runner.run(self._opened())

            async def put(number: int) -> None:
                await client.insert(make(number), **route(number))

            wait_for = runner.get_loop().run_until_complete
            yield lambda number: wait_for(put(number))
            runner.run(client.close())

    def work(self, slots: int) -> None:
        """Run jobs until SIGTERM."""
        asyncio.run(self._work(slots))

    async def _work(self, slots: int) -> None:
        from psycopg_pool import AsyncConnectionPool

        stopped = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
        client = self._client()
        # The application's own connections, in autocommit mode: Awa's are for its transactions.
        async with AsyncConnectionPool(
            database_url(), min_size=10, max_size=10, open=False, kwargs={"autocommit": True}
        ) as pool:

            async def insert(job: Any) -> None:
                async with pool.connection() as connection:
                    await connection.execute("INSERT INTO note (text) VALUES ('a note')")
                mark()

            client.task(Insert, queue="default")(insert)
            await self._start(client, slots)
            await stopped.wait()
            await client.shutdown()
            await client.close()

    async def _start(self, client: Any, slots: int) -> None:
        # A task belongs to all partitions, whichever queue is named here.
        client.task(Noop, queue="default")(_noop)
        client.task(Stamp, queue="default")(_stamp)
        client.task(Wait, queue="default")(_wait)
        if self.partitions:
            queue = _queue(self.partitions)
            await client.start(queue.queue_configs(max_workers_per_partition=-(-slots // self.partitions)))
        else:
            await client.start([("default", slots)])

    def _route(self) -> Callable[[int], dict[str, Any]]:
        """Return a function that says to which queue the job with a number goes."""
        if not self.partitions:
            return lambda number: {}
        route: Callable[[int], dict[str, Any]] = _queue(self.partitions).route_by_index
        return route

    def _client(self) -> Any:
        from awa import AsyncClient

        return AsyncClient(database_url(), **self.connections)

    async def _opened(self) -> Any:
        client = self._client()
        await client.health_check()
        return client


class AwaBest(Awa):
    """Four partitions, many jobs at a time, and a larger pool."""

    name = "awa-best"
    configuration = "4 partitions of 256 coroutines, a pool of 36 connections"
    partitions = PARTITIONS
    connections = {"max_connections": CONNECTIONS}
    pace = 6_000
    insert_pace = 1_000
    slots = AT_A_TIME * PARTITIONS


async def _noop(job: Any) -> None:
    mark()


async def _wait(job: Any) -> None:
    await a_wait()


async def _stamp(job: Any) -> None:
    stamp(job.args.number)
    mark()


def _maker(kind: Kind) -> Callable[[int], Any]:
    """Return a function that makes the arguments of the job with a number."""
    if kind == "stamp":
        return Stamp
    job = {"noop": Noop, "insert": Insert, "wait": Wait}[kind]
    return lambda number: job()


def _queue(partitions: int) -> Any:
    from awa import PartitionedQueue

    return PartitionedQueue("default", partitions)
