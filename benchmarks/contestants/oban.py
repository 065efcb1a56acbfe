"""Oban for Python: ``oban start``, and its asynchronous driver on uvloop.

``oban start`` is the worker that its documentation recommends. It brings uvloop and orjson. The example there
has a limit of 10 jobs for the queue. These are the choices for throughput:

- One thread runs all jobs as coroutines. The limit of the queue is high
  instead: one fetch claims as many jobs as are missing, and one transaction records the outcomes of all that
  have ended. 300 was faster here than 100, and steadier than 1000. Its documentation advises against a larger
  pool for that.
- The log level is WARNING, since at INFO each start and end of a job is a line of JSON.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from benchmarks.marks import a_wait, mark, stamp

from .contract import Contestant, Kind, database_url

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterator

__all__ = ["Insert", "Noop", "Oban", "ObanBest", "Stamp", "Wait"]


class Oban(Contestant):
    """``enqueue``, ``enqueue_many`` and ``oban start`` as its documentation shows it."""

    name = "oban"
    configuration = "10 coroutines"
    requirements = ("oban==0.7.0", "psycopg[binary]==3.3.9", "psycopg-pool==3.3.3", "uvloop==0.23.0")
    pace = 500
    insert_pace = 500
    slots = 10
    unfinished = "SELECT count(*) FROM oban_jobs WHERE state IN ('available', 'executing')"
    clear = "TRUNCATE oban_jobs"
    finished = """
        INSERT INTO oban_jobs (state, worker, attempt, attempted_by, attempted_at, completed_at)
        SELECT 'completed', 'benchmarks.contestants.oban.Noop', 1,
            ARRAY['localhost.4711', gen_random_uuid()::text],
            timezone('UTC', now()), timezone('UTC', now())
        FROM generate_series(1, %(jobs)s)
    """

    def prepare(self) -> None:
        """Create its tables."""
        from oban import Oban as Queue
        from oban.schema import install

        with _runner() as runner:
            pool = runner.run(Queue.create_pool(database_url()))
            runner.run(install(pool))
            runner.run(pool.close())

    def fill(self, kind: Kind, jobs: int, **options: Any) -> None:
        """Enqueue with ``enqueue_many``, in one transaction."""
        with _queue() as (queue, runner):
            make = _maker(kind)
            runner.run(queue.enqueue_many(make(number) for number in range(jobs)))

    @contextmanager
    def putting(self, kind: Kind) -> Iterator[Callable[[int], object]]:
        """Enqueue with ``enqueue``, which commits."""
        with _queue() as (queue, runner):
            make, wait_for = _maker(kind), runner.get_loop().run_until_complete
            yield lambda number: wait_for(queue.enqueue(make(number)))

    def work(self, slots: int) -> None:
        """Run its own command."""
        self._start(slots)

    def _start(self, limit: int, *options: str) -> None:
        from oban.cli import main

        # Without the module it searches the whole folder for periodic jobs.
        command = (
            "start",
            "--dsn",
            database_url(),
            "--queues",
            f"default:{limit}",
            "--cron-modules",
            __name__,
        )
        main([*command, *options])


class ObanBest(Oban):
    """A higher limit, and no log of each job."""

    name = "oban-best"
    configuration = "300 coroutines, log level WARNING"
    pace = 7_000
    insert_pace = 1_500
    slots = 300

    def work(self, slots: int) -> None:
        """Run its own command."""
        self._start(slots, "--log-level", "WARNING")


class Noop:
    """The job ``noop``. Workers find these classes by their path."""

    async def process(self, job: Any) -> None:
        """Leave a mark."""
        mark()


class Insert:
    """The job ``insert``."""

    async def process(self, job: Any) -> None:
        """Insert one row with the application's pool, in autocommit mode."""
        pool = await _application_pool()
        async with pool.connection() as connection:
            await connection.execute("INSERT INTO note (text) VALUES ('a note')")
        mark()


class Stamp:
    """The job ``stamp``."""

    async def process(self, job: Any) -> None:
        """Record when the job started."""
        stamp(job.args["number"])
        mark()


class Wait:
    """The job ``wait``."""

    async def process(self, job: Any) -> None:
        """Wait as long as the benchmark says."""
        await a_wait()


_pools: list[Any] = []


async def _application_pool() -> Any:
    """Return the pool that jobs use, as large as Oban's own."""
    from psycopg_pool import AsyncConnectionPool

    if not _pools:
        _pools.append(
            AsyncConnectionPool(
                database_url(), min_size=10, max_size=10, open=False, kwargs={"autocommit": True}
            )
        )
        await _pools[0].open()
    return _pools[0]


def _maker(kind: Kind) -> Callable[[int], Any]:
    """Return a function that makes the job with a number."""
    from oban import worker

    decorated = worker()({"noop": Noop, "insert": Insert, "stamp": Stamp, "wait": Wait}[kind])
    return lambda number: decorated.new({"number": number} if kind == "stamp" else {})


@contextmanager
def _queue() -> Iterator[tuple[Any, asyncio.Runner]]:
    """Return its client, with an open connection, and the event loop that runs it."""
    from oban import Oban as Queue

    with _runner() as runner:
        pool = runner.run(Queue.create_pool(database_url(), min_size=1))
        yield Queue(pool=pool), runner
        runner.run(pool.close())


def _runner() -> asyncio.Runner:
    import asyncio

    import uvloop

    return asyncio.Runner(loop_factory=uvloop.new_event_loop)
