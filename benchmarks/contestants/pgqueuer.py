"""PgQueuer: coroutines and asyncpg. It claims jobs in batches, and finishes them in batches, too."""

from __future__ import annotations

import asyncio
import signal
from contextlib import AsyncExitStack, contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

from benchmarks.marks import a_wait, mark, stamp

from .contract import Contestant, Kind, database_url

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

__all__ = ["PgQueuer", "PgQueuerBest"]

#: Jobs for each ``enqueue()`` of many. More are not faster.
CHUNK = 1000


class PgQueuer(Contestant):
    """``Queries.enqueue`` and ``PgQueuer.run``, with the faster of its drivers, asyncpg, on uvloop.

    The choices follow its pages on performance tuning and benchmarks:

    - The tables stay ``durable``, the default, and have the autovacuum settings of ``pgq autovac``.
    - Its job status log has no settings besides the batch size: it writes when a batch is full, or after
      100 ms.
    - The number of concurrent tasks is not limited, which is the default. A limit of two batches, the lowest
      that is allowed, changed the rates by less than the noise.
    - ``dequeue_timeout`` keeps its default. A worker that is woken by notifications does not reach it.
    - One ``PgQueuer`` in each process. Two or three, each with its own connection, were not faster.
    - With one process, a pool was 1 to 20 percent faster than a single connection, since a claim does not
      wait for a finish. With two processes on two cores, a single connection was 2 to 20 percent faster.
    """

    name = "pgqueuer"
    configuration = "batches of 10 jobs, any number of coroutines"
    requirements = ("pgqueuer==1.6.0", "asyncpg==0.32.0", "uvloop==0.23.0")
    batch_size: ClassVar[int] = 10
    pace = 8_000
    insert_pace = 3_000
    slots = 2_000
    unfinished = "SELECT count(*) FROM pgqueuer"
    clear = "TRUNCATE pgqueuer, pgqueuer_log, pgqueuer_statistics"
    # A finished job leaves a row in the log for each status that it had. The log is never emptied. Workers
    # count its new rows every half minute, into one row for each second, and mark them as aggregated.
    finished = """
        INSERT INTO pgqueuer_log (job_id, status, priority, entrypoint, aggregated)
        SELECT job.id, status, 0, 'noop', true
        FROM (
            SELECT nextval('pgqueuer_id_seq') AS id FROM generate_series(1, %(jobs)s) OFFSET 0
        ) AS job
        CROSS JOIN unnest(ARRAY['queued', 'picked', 'successful']::pgqueuer_status[]) AS status
    """

    def prepare(self) -> None:
        """Do what ``pgq install`` and ``pgq autovac`` do."""

        async def install() -> None:
            queries = await connect()
            await queries.install()
            await queries.optimize_autovacuum()

        run(install())

    def fill(self, kind: Kind, jobs: int, **options: Any) -> None:
        """Enqueue with lists of entrypoints, payloads and priorities."""
        assert not options, options

        async def enqueue() -> None:
            queries = await connect()
            for first in range(0, jobs, CHUNK):
                payloads = [payload(kind, number) for number in range(first, min(first + CHUNK, jobs))]
                await queries.enqueue([kind] * len(payloads), payloads, [0] * len(payloads))

        run(enqueue())

    @contextmanager
    def putting(self, kind: Kind) -> Iterator[Callable[[int], object]]:
        """Enqueue over one connection: a pool adds a query that resets the connection after each use.

        Its synchronous driver, for views that are not coroutines, took as long.
        """
        import uvloop

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            queries = runner.run(connect())
            yield lambda number: runner.run(queries.enqueue(kind, payload(kind, number)))

    def workers(self, kind: Kind) -> list[list[str]]:
        """Run one process."""
        return self.working(1, 10)

    def work(self, slots: int) -> None:
        """Run jobs. ``slots`` is the number of jobs that use the database at the same time."""
        run(self._work(slots))

    async def _work(self, slots: int) -> None:
        """Run until SIGTERM."""
        import asyncpg
        import pgqueuer

        async with AsyncExitStack() as stack:
            connection = await asyncpg.connect(database_url())
            stack.push_async_callback(connection.close)
            manager = pgqueuer.PgQueuer.from_asyncpg_connection(connection)
            notes = asyncpg.create_pool(database_url(), min_size=0, max_size=slots)
            await stack.enter_async_context(notes)
            register(manager, notes)
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, manager.shutdown.set)
            await manager.run(batch_size=self.batch_size)


class PgQueuerBest(PgQueuer):
    """Batches of 1,000 jobs, and a process for each core."""

    name = "pgqueuer-best"
    configuration = "2 processes, batches of 1,000 jobs, any number of coroutines"
    batch_size = 1000
    pace = 38_000
    wait_pace = 20_000
    insert_pace = 4_500

    def workers(self, kind: Kind) -> list[list[str]]:
        """Run two processes."""
        return self.working(2, 5)


def register(manager: Any, notes: Any) -> None:
    """Give the worker its jobs. Those that insert a row take a connection from a pool of their own."""

    async def run_noop(job: Any) -> None:
        mark()

    async def run_insert(job: Any) -> None:
        await notes.execute("INSERT INTO note (text) VALUES ($1)", "a note")
        mark()

    async def run_stamp(job: Any) -> None:
        stamp(int(job.payload))
        mark()

    async def run_wait(job: Any) -> None:
        await a_wait()

    manager.entrypoint("wait")(run_wait)
    manager.entrypoint("noop")(run_noop)
    manager.entrypoint("insert")(run_insert)
    manager.entrypoint("stamp")(run_stamp)


def payload(kind: Kind, number: int) -> bytes | None:
    """Return the payload of a job: the number if the job needs one."""
    return str(number).encode() if kind == "stamp" else None


async def connect() -> Any:
    """Return what enqueues, with a new connection, which stays open until the program ends."""
    import asyncpg
    from pgqueuer.queries import Queries

    return Queries.from_asyncpg_connection(await asyncpg.connect(database_url()))


def run(main: Coroutine[Any, Any, None]) -> None:
    """Run on uvloop, as its command and its benchmark do."""
    import uvloop

    uvloop.run(main)
