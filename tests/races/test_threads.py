"""Threads of one process: who waits for a job that ends at this moment, and a job that logs at its end."""

from __future__ import annotations

import json
import logging
from collections import deque
from collections.abc import Iterator
from threading import Event, Lock, Thread
from typing import Any

import pytest

from django_pgqueue import cancel, enqueue
from django_pgqueue.models import joins
from django_pgqueue.models.joins import Poller, watch
from django_pgqueue.worker.executor.running_job import LogCapture
from tests.app import worker_tasks
from tests.support.sessions import Connect
from tests.support.waiting import DEADLINE, run

pytestmark = pytest.mark.django_db(transaction=True)


def joined(job: Any, how: str) -> Any:
    return job.join(DEADLINE) if how == "join" else run(job.ajoin(DEADLINE))


@pytest.mark.parametrize("how", ["join", "ajoin"])
def test_the_job_ends_before_the_wait_and_is_retried_before_its_end_is_read(
    connect: Connect, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread tells of its end, and then the wait goes on, until the next end."""
    job, other = enqueue(worker_tasks.noop), connect(autocommit=True)
    ends: list[Any] = []

    def late(alias: str, pk: int) -> Any:
        other.execute("SELECT pgqueue_cancel(ARRAY[%s::bigint])", (pk,))
        ends.append(watch(alias, pk))
        ends[-1].result(DEADLINE)  # told by the thread, and not by the last look after the timeout
        if len(ends) == 1:
            other.execute("SELECT pgqueue_retry(ARRAY[%s::bigint])", (pk,))
        return ends[-1]

    monkeypatch.setattr(joins, "watch", late)
    assert joined(job, how).status == "cancelled"
    assert len(ends) == 2


def test_somebody_begins_to_wait_while_the_thread_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    job = enqueue(worker_tasks.noop)
    cancel(job)
    ends, goes_on = Event(), Event()

    class Slow(Poller):
        def _wait_for_due(self) -> Any:
            due = super()._wait_for_due()
            if not due:
                ends.set()
                assert goes_on.wait(DEADLINE)
            return due

    slow = Slow("default")
    slow.watch(job.pk).result(DEADLINE)
    assert ends.wait(DEADLINE)
    try:
        slow.watch(job.pk).result(5.0)
    finally:
        goes_on.set()


# -- the lines that a job logs


class Watched:
    """A lock that tells when another thread has to wait for it."""

    def __init__(self, stepped: Event) -> None:
        self._lock = Lock()
        self._stepped = stepped

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            self._stepped.set()
            self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def beside(action: Any, stepped: Event) -> Thread:
    """Run the action in another thread, until it has ended or waits for the lock."""

    def run() -> None:
        action()
        stepped.set()

    thread = Thread(target=run)
    thread.start()
    assert stepped.wait(DEADLINE)
    return thread


def test_a_thread_of_the_task_still_logs_while_its_lines_are_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def record(text: str) -> logging.LogRecord:
        return logging.LogRecord("shop", logging.INFO, "", 0, text, (), None)

    stepped, threads = Event(), list[Thread]()
    log = LogCapture(logging.INFO, 4, 1000)
    for text in "abcd":
        log.add(record(text))

    class Slow(deque[Any]):
        def __iter__(self) -> Iterator[Any]:
            for each in super().__iter__():
                yield each
                if not threads:
                    threads.append(beside(lambda: log.add(record("late")), stepped))

    monkeypatch.setattr(log, "_lock", Watched(stepped))
    monkeypatch.setattr(log, "_last", Slow(log._last))
    kept = log.as_json(1)
    threads[0].join(DEADLINE)
    assert [line["message"] for line in json.loads(str(kept))["lines"]] == ["a", "b", "c", "d"]
    after = json.loads(str(log.as_json(1)))
    assert ([line["message"] for line in after["lines"]], after["left_out"]) == (["a", "b", "d", "late"], 1)
