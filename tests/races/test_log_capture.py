"""Races of what keeps the logs of jobs: a job logs while its lines are reported."""

from __future__ import annotations

import json
import logging
from collections import deque
from collections.abc import Iterator
from threading import Event, Lock, Thread
from typing import Any

import pytest

from django_pgqueue.worker.executor.running_job import LogCapture
from tests.support.waiting import DEADLINE


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
