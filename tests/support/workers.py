"""Workers for tests: one that runs all jobs that are due and then ends, one that runs during a block, and the
recovery of those that died.

They run in this process with real connections and threads, so the jobs must be committed (transactional
tests). What happens to a job, whichever thread runs it, is tested without (``run_here``), in milliseconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread, Timer
from typing import Any

from django.db import connections

from django_pgqueue import BoundTask, enqueue
from django_pgqueue.models import Job
from django_pgqueue.worker.inline import InlineWorker
from django_pgqueue.worker.options import Assignment, WorkerOptions, new_id
from django_pgqueue.worker.process import build_producer
from django_pgqueue.worker.producer.producer import Producer

from .jobs import value
from .sessions import Connection
from .waiting import DEADLINE, until

__all__ = ["DEADLINE", "until"]


def fresh(job: Any) -> Job:
    """Return a job, given as an object or as an id, as it is in the database now."""
    return Job.objects.get(pk=getattr(job, "pk", job))


def over(*jobs: Any, seconds: float = DEADLINE) -> None:
    """Wait until the jobs, given as objects or as ids, are over."""
    found = Job.objects.filter(pk__in=[getattr(job, "pk", job) for job in jobs])
    live = found.exclude(status__in=["done", "failed", "cancelled"])
    until(lambda: not live.exists(), seconds=seconds, what="all over")


def done(*jobs: Any) -> None:
    """Wait until the jobs are over. All must be done."""
    over(*jobs)
    assert {fresh(job).status for job in jobs} == {"done"}


def run_here(most: int = 100) -> InlineWorker:
    """Run the jobs that are due, or so many of them, one by one on this thread and connection."""
    worker = InlineWorker("default")
    for _ in range(most):
        if worker.run_next() is None:
            break
    worker.close()
    return worker


def ran(call: BoundTask, most: int = 100) -> Job:
    """Enqueue a call, and return its job when everything that is due has run here."""
    job = enqueue(call)
    run_here(most)
    return fresh(job)


def make_producer(**options: Any) -> Producer:
    """Return a producer as a worker process creates it, before it is started."""
    return build_producer(Assignment(WorkerOptions(**options), worker=new_id(), supervisor=new_id()))


def run_due(producer: Producer | None = None, **options: Any) -> Producer:
    """Run jobs on this thread until no job is due, by a producer with these options or by the given one."""
    producer = producer or make_producer(burst=True, **options)
    watchdog = Timer(2 * DEADLINE, producer.stop, [0.0])
    watchdog.start()
    try:
        producer.run()
    finally:
        watchdog.cancel()
        producer._waker.close()
    assert producer.lifetime.replaced or not producer.lifetime.stopping, (
        f"the burst did not end within {2 * DEADLINE:g} s"
    )
    return producer


class RunningWorker:
    """A producer in a separate thread."""

    def __init__(self, producer: Producer) -> None:
        self.producer = producer
        self.error: BaseException | None = None
        self.thread = Thread(target=self._run, name="producer", daemon=True)
        self.thread.start()

    def _run(self) -> None:
        try:
            self.producer.run()
        except BaseException as error:
            self.error = error
        finally:
            connections.close_all()

    def stop(self, grace: float = DEADLINE) -> None:
        """Stop the producer as a signal does, wait until it has ended, and raise the error that it raised."""
        self.producer.stop(grace)
        self.thread.join(DEADLINE + grace)
        assert not self.thread.is_alive(), "the worker did not stop"
        if self.error is not None:
            raise self.error


@contextmanager
def working(**options: Any) -> Iterator[RunningWorker]:
    """Run a worker while the block runs."""
    worker = RunningWorker(make_producer(**options))
    try:
        yield worker
    finally:
        worker.stop()


def backend_of(producer: Producer) -> int | None:
    """Return the id of the server process that serves the producer, or None if it has no connection."""
    session = producer._connection.session
    if session is None or session.connection.closed:
        return None
    return session.connection.info.backend_pid


def recover(connection: Connection, worker: int = 1) -> int:
    """Give back the jobs of a worker that has died. Return how many there were."""
    query = "SELECT jobs FROM _pgqueue_recover(ARRAY[%s]::bigint[], '{}', NULL, true, 'lost', 3, 100, 20)"
    return int(value(connection, query, worker))


def recover_dead(connection: Connection) -> tuple[int, int]:
    """Run a round of recovery with a heartbeat of 0.1 s and a lease of 0.5 s. Return workers and jobs."""
    query = "SELECT dead, jobs FROM _pgqueue_recover_dead(0.1, 0.5, 3, 100, 20)"
    dead, jobs = connection.execute(query).fetchone() or (0, 0)
    return dead, jobs
