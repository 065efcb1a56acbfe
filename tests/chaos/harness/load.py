"""The load: a thread that enqueues jobs in transactions until it is told to stop, as web processes do.

Each transaction is announced in the ledger, and so is its outcome as the client saw it. Some transactions are
rolled back. A client that loses its connection does not know whether its transaction was committed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from random import Random

from django.db import Error, connection, connections, transaction

from django_pgqueue import enqueue_many
from django_pgqueue.models import Job
from django_pgqueue.tasks.task import BoundTask
from tests.app import ledger_tasks as tasks

from .ledger import COMMITTED, IN_DOUBT, INTEND, ROLLED_BACK, Ledger

Mix = Callable[[int, Random], BoundTask]
"""Returns the call of a job for its number."""

PAUSE = 0.2
"""Seconds until the next try if the server cannot be reached."""


def mixed(number: int, choice: Random) -> BoundTask:
    """Sync, async, atomic, failing and limited jobs. Most take milliseconds, and some most of a second."""
    seconds = choice.uniform(0.2, 0.8) if choice.random() < 0.2 else choice.uniform(0.0, 0.02)
    kind = choice.randrange(10)
    if kind < 3:
        return tasks.sync_effect.bind(number, seconds)
    if kind < 5:
        return tasks.async_effect.bind(number, seconds)
    if kind < 8:
        return tasks.atomic_effect.bind(number, seconds)
    if kind < 9:
        return tasks.fails_once.bind(number, seconds)
    return tasks.few.bind(number, choice.randrange(5), min(seconds, 0.1))


class Load:
    """Enqueues jobs, from its thread or when it is asked to."""

    def __init__(
        self, ledger: Ledger, choice: Random, *, rate: float, backlog: int, mix: Mix = mixed, first: int = 0
    ) -> None:
        """``first``: the number of the first job. Loads of several processes must not share numbers."""
        self.rate = rate
        """Jobs in a second."""
        self.backlog = backlog
        """While more jobs than that wait or run, the thread enqueues none."""
        self._ledger = ledger
        self._choice = choice
        self._mix = mix
        self._numbers = count(first)
        self._transactions = count()
        self._stop = threading.Event()
        self._error: BaseException | None = None

    @contextmanager
    def running(self) -> Iterator[None]:
        """Run the thread for the duration of the block. An error of the thread is raised at the end."""
        thread = threading.Thread(target=self._run, name="load", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._stop.set()
            thread.join()
        if self._error is not None:
            raise self._error

    @contextmanager
    def held(self) -> Iterator[None]:
        """Let the thread enqueue nothing new in the block."""
        backlog, self.backlog = self.backlog, 0
        try:
            yield
        finally:
            self.backlog = backlog

    def enqueue(self, bind: Callable[[int], BoundTask], *, expects: str = "done") -> int:
        """Enqueue one job in a transaction of its own. Return its number."""
        number = next(self._numbers)
        self.transact([number], [bind(number)], expects=expects)
        return number

    def transact(
        self,
        numbers: Sequence[int],
        calls: Sequence[BoundTask],
        *,
        expects: str = "done",
        is_rolled_back: bool = False,
    ) -> str:
        """Enqueue these jobs, record what became of the transaction, and return that."""
        name = next(self._transactions)
        self._ledger.write(INTEND, transaction=name, numbers=list(numbers), expects=expects)
        ids: list[int] = []
        try:
            with transaction.atomic():
                ids = enqueue_many(calls).ids
                transaction.set_rollback(is_rolled_back)
        except Error:
            # What was to be rolled back is not there, whatever happened to the connection.
            outcome = ROLLED_BACK if is_rolled_back else IN_DOUBT
            connection.close()
        else:
            outcome = ROLLED_BACK if is_rolled_back else COMMITTED
        self._ledger.write(outcome, transaction=name, jobs=ids if outcome == COMMITTED else [])
        return outcome

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                size = self._choice.choice([1, 1, 3, 10])
                pause = size / self.rate
                if self._has_room():
                    numbers = [next(self._numbers) for _ in range(size)]
                    calls = [self._mix(number, self._choice) for number in numbers]
                    is_rolled_back = self._choice.random() < 0.1
                    if self.transact(numbers, calls, is_rolled_back=is_rolled_back) == IN_DOUBT:
                        pause = PAUSE
                self._stop.wait(pause)
        except BaseException as error:
            self._error = error
        finally:
            connections.close_all()

    def _has_room(self) -> bool:
        try:
            return Job.objects.filter(shelf=0).count() < self.backlog
        except Error:
            connection.close()
            return False
