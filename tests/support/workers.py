"""Workers for tests: one that runs what is due and ends, one that runs beside the test for a block.

They run in this process, with real connections and threads: the jobs must be committed (transactional tests).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread, Timer
from typing import Any

from django.db import connections

from django_pgqueue.models import Job
from django_pgqueue.worker.options import Assignment, WorkerOptions, new_id
from django_pgqueue.worker.process import build_producer
from django_pgqueue.worker.producer.producer import Producer

from .waiting import DEADLINE, until

__all__ = ["DEADLINE", "RunningWorker", "backend_of", "fresh", "make_producer", "run_due", "until", "working"]


def fresh(job: Any) -> Job:
    """The job (or the one with this id) as the database has it now."""
    return Job.objects.get(pk=getattr(job, "pk", job))


def make_producer(**options: Any) -> Producer:
    """A producer that has not begun, as a worker process makes it."""
    return build_producer(Assignment(WorkerOptions(**options), worker=new_id(), supervisor=new_id()))


def run_due(**options: Any) -> Producer:
    """Work on this thread until nothing is due."""
    producer = make_producer(burst=True, **options)
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
    """A producer in a thread of its own."""

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
        """Stop it as a signal does, wait for its end, and pass on what it raised."""
        self.producer.stop(grace)
        self.thread.join(DEADLINE + grace)
        assert not self.thread.is_alive(), "the worker did not stop"
        if self.error is not None:
            raise self.error


@contextmanager
def working(**options: Any) -> Iterator[RunningWorker]:
    """A worker that runs beside the test."""
    worker = RunningWorker(make_producer(**options))
    try:
        yield worker
    finally:
        worker.stop()


def backend_of(producer: Producer) -> int | None:
    """The process of the server that the producer talks to; None while it has no connection."""
    session = producer._connection.session
    if session is None or session.connection.closed:
        return None
    return session.connection.info.backend_pid
