"""How many jobs to claim: of one kind, or sync and async jobs if async ones have slots of their own.

A claim cannot know which jobs are async. So the share of async jobs in the last claims tells how many rows
bring about as many sync ones as the threads take soon (``batch_size``), and as many async ones as there are
free slots.

The rows of a kind that has no room are requeued at once: another worker may have a free thread for them. If
they come first in their queue, the next claim returns them again. So while one kind has no room, the worker
still looks for jobs of the other kind behind them, but only once in a while:

    one kind has no room --a claim returned jobs of it--> look again after ``PAUSE``
    the claim returned nothing else--> the pause doubles, up to ``LONGEST_PAUSE``
    both kinds have room--> no pause
"""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING

from .batch_size import BATCH, BatchSize

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ...lifecycle.claimed import Claimed
    from ..executor.outcomes import Result
    from ..executor.threads import Executor

__all__ = ["OneKind", "TwoKinds"]

PAUSE = 1.0  # seconds
LONGEST_PAUSE = 30.0
HOARD_SECONDS = 1.0  # a job that has not started after this time is requeued: another worker may be free
_WEIGHT = 0.5  # of the newest claim in the share


class OneKind:
    """Sync and async jobs share the slots, of which there are as many as threads."""

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._batch_size = BatchSize(slots)
        self._dispatched_at = 0.0

    @property
    def job_seconds(self) -> float:
        """How long a job takes that runs on a thread."""
        return self._batch_size.job_seconds

    @property
    def target(self) -> int:
        """How many jobs the worker should hold."""
        return self._batch_size.target

    def learn(self, results: Iterable[Result]) -> None:
        """Take the run times of finished jobs into account."""
        self._batch_size.learn([result.ran for result in results])

    def wanted(self, held: int, kept: int) -> int:
        """Return how many jobs to claim now. ``held``: how many the worker holds, also those that are claimed
        but not dispatched yet (``kept``).
        """
        return self._batch_size.wanted(held, running_low=held < self._slots)

    def weigh(self, rows: list[Claimed]) -> None:
        """Take claimed rows into account."""
        self._dispatched_at = monotonic()
        self._batch_size.weigh(rows)

    def split(self, rows: list[Claimed]) -> tuple[list[Claimed], list[Claimed]]:
        """Return the rows to run, and those for which there is no room."""
        return rows, []

    def hoards(self, held: int, now: float) -> bool:
        """Return whether jobs that were claimed ahead should be requeued, because jobs take longer than
        expected.
        """
        if now - self._dispatched_at <= HOARD_SECONDS or held <= self._slots:
            return False
        self._dispatched_at = now
        self._batch_size.learn([HOARD_SECONDS])
        return True


class _Kind:
    """The jobs of one kind."""

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self.batch_size = BatchSize(slots)
        self.held = 0
        self.ahead_since = 0.0

    def room(self, more: float) -> int:
        """Return how many jobs of this kind to claim, if ``more`` are claimed already."""
        return self.batch_size.wanted(self.held + round(more), running_low=self.held + more < self.slots)

    def take(self, now: float) -> bool:
        """Return whether there is room for one more."""
        if self.held >= self.batch_size.target:
            return False
        self.held += 1
        if self.held > self.slots:
            self.ahead_since = now
        return True

    def hoards(self, now: float) -> bool:
        """Return whether jobs of this kind wait for too long."""
        if self.held <= self.slots or now - self.ahead_since <= HOARD_SECONDS:
            return False
        self.ahead_since = now
        self.batch_size.learn([HOARD_SECONDS])
        return True


class TwoKinds:
    """Sync jobs run in ``threads``, and async ones in ``slots``.

    ``is_async`` returns whether the task of this path is async, and None if it has not been found yet. A job
    of such a task needs a thread first, like a sync one. If there is none, only its task is found.
    """

    def __init__(
        self,
        threads: int,
        slots: int,
        executor: Executor,
        is_async: Callable[[str], bool | None],
    ) -> None:
        self._sync = _Kind(threads)
        self._async = _Kind(slots)
        self._executor = executor
        self._sought: set[str] = set()
        self._is_async = is_async
        self._share = 0.5  # of async jobs in a claim
        self._returned = 0  # by the last claim
        self._pause = PAUSE
        self._look_at = 0.0

    @property
    def job_seconds(self) -> float:
        """How long a job takes that runs on a thread."""
        return self._sync.batch_size.job_seconds

    @property
    def target(self) -> int:
        """How many jobs the worker should hold."""
        return self._sync.batch_size.target + self._async.batch_size.target

    def learn(self, results: Iterable[Result]) -> None:
        """Take the run times of finished jobs into account."""
        seconds: tuple[list[float], list[float]] = ([], [])
        for result in results:
            seconds[bool(self._is_async(result.row.task_path))].append(result.ran)
        self._sync.batch_size.learn(seconds[False])
        self._async.batch_size.learn(seconds[True])

    def wanted(self, held: int, kept: int) -> int:
        """Return how many jobs to claim now. ``kept``: how many are claimed but not dispatched yet."""
        self._count()
        share = self._share
        of_sync, of_async = self._sync.room(kept * (1 - share)), self._async.room(kept * share)
        if of_sync and of_async:
            fitting = min(_divided(of_sync, 1 - share), _divided(of_async, share))
            return max(1, int(min(fitting, max(of_sync, of_async))))
        if not of_sync and not of_async:
            return 0
        if monotonic() < self._look_at:
            return 0
        return min(of_sync + of_async + 2 * self._returned, max(BATCH, of_async))

    def weigh(self, rows: list[Claimed]) -> None:
        """Take claimed rows into account."""
        for kind in (self._sync, self._async):
            kind.batch_size.weigh(rows)

    def split(self, rows: list[Claimed]) -> tuple[list[Claimed], list[Claimed]]:
        """Return the rows to run, and those for which there is no room."""
        self._count()
        now, known, of_async = monotonic(), 0, 0
        runs: list[Claimed] = []
        returned: list[Claimed] = []
        for row in rows:
            is_async = self._is_async(row.task_path)
            known += is_async is not None
            of_async += bool(is_async)
            if (self._async if is_async else self._sync).take(now):
                runs.append(row)
                continue
            returned.append(row)
            if is_async is None and row.task_path not in self._sought:
                self._sought.add(row.task_path)
                self._executor.find_task(row.task_path)
        if known:
            self._learn_share(of_async / known)
        self._returned = len(returned)
        if returned:
            self._pause = PAUSE if runs else min(2 * self._pause, LONGEST_PAUSE)
            self._look_at = now + self._pause
        return runs, returned

    def hoards(self, held: int, now: float) -> bool:
        """Return whether jobs that were claimed ahead should be requeued, because jobs take longer than
        expected.
        """
        self._count()
        return any([self._sync.hoards(now), self._async.hoards(now)])

    def _count(self) -> None:
        self._sync.held, self._async.held = self._executor.held()

    def _learn_share(self, newest: float) -> None:
        # More sync jobs than expected count at once: those that cannot start would have to be requeued.
        self._share = newest if newest < self._share else self._share + (newest - self._share) * _WEIGHT


def _divided(room: int, share: float) -> float:
    return room / share if share else float("inf")
