"""How many jobs to claim: only as many as can start soon, and as memory allows.

For each kind of job, this is one job for each free slot, and as many as the slots will finish within 0.1 s at
their recent pace, so jobs that take microseconds are claimed in large batches, and a job that takes seconds
is never held by a worker that has no free slot for it. If jobs are large, it is fewer: by their average size
lately, the rows that a process holds should not take more than ``HELD_CHARACTERS``.

There is one kind, unless async jobs have slots of their own. A claim cannot know which jobs are async, so
their share in the last claims says how many rows to ask for. The rows of a kind that has no room are
requeued at once: another worker may have room for them. If they come first in their queue, the next claim
returns them again, so while one kind has no room, the worker polls for jobs of the other kind behind them,
but only after a pause. It doubles whenever a claim returned nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from time import monotonic

from ...jobs.claim import BATCH, Claimed
from ..executor.outcomes import Result
from ..executor.threads import Executor

AHEAD = 0.1  # seconds
MOST = 1_000  # jobs claimed and not finished
UNKNOWN = 1.0  # assumed seconds of a job until the first one was measured
HELD_CHARACTERS = 32_000_000  # of JSON in the rows of these jobs
HOARD_SECONDS = 1.0  # a job that has not started after this time is requeued: another worker may be free
PAUSE = 1.0  # seconds
LONGEST_PAUSE = 30.0
_BATCH_WEIGHT = 0.3  # of the newest batch in the averages
_SHARE_WEIGHT = 0.5  # of the newest claim in the share


@dataclass
class Slots:
    """The jobs of one kind and their slots, with the averages of how long a job takes and how large it is."""

    slots: int
    held: int = 0  # jobs of the worker, as they were counted last
    ahead_since: float = 0.0  # when more were dispatched than there are slots
    job_seconds: float = UNKNOWN  # until the first one was measured, no jobs are claimed ahead
    _has_learned: bool = False
    _job_characters: float = 1.0  # of the JSON in a row

    @property
    def target(self) -> int:
        """How many jobs the worker should hold."""
        in_time = self.slots + int(self.slots * AHEAD / self.job_seconds)
        in_memory = int(HELD_CHARACTERS / self._job_characters)
        return max(self.slots, min(MOST, in_time, in_memory))

    def wanted(self, held: int) -> int:
        """Return how many jobs to claim now; 0 while more than half of those held ahead are left.

        The jobs in the slots do not count: with many slots, nothing would be left to start during the claim.
        """
        target = self.target
        free = target - held
        if free <= 0 or (free < (target - self.slots) // 2 and held >= self.slots):
            return 0
        return min(free, max(BATCH, self.slots))

    def learn(self, seconds: Sequence[float]) -> None:
        """Take the run times of finished jobs into account."""
        if seconds:
            average = max(1e-6, sum(seconds) / len(seconds))
            self.job_seconds = _moved(self.job_seconds, average) if self._has_learned else average
            self._has_learned = True

    def weigh(self, rows: Sequence[Claimed]) -> None:
        """Take the size of claimed rows into account: everything in them that has no fixed size."""
        sizes = [len(row.args) + len(row.kwargs) + len(row.metadata) + len(row.errors) for row in rows]
        self._job_characters = _moved(self._job_characters, sum(sizes) / len(sizes))

    def hoards(self, now: float) -> bool:
        """Return whether these jobs wait for too long."""
        if self.held <= self.slots or now - self.ahead_since <= HOARD_SECONDS:
            return False
        self.ahead_since = now
        self.learn([HOARD_SECONDS])
        return True


class Demand:
    """What a worker claims for its ``threads``, and for its ``async_slots`` if async jobs have their own.

    ``is_async`` returns whether the task of this path is async, and None if it has not been found yet. A job
    of such a task needs a thread first, like a sync one. If there is none, only its task is found.
    """

    def __init__(
        self,
        threads: int,
        async_slots: int | None,
        executor: Executor,
        is_async: Callable[[str], bool | None],
    ) -> None:
        self.sync = Slots(threads)
        self._async = None if async_slots is None else Slots(async_slots)
        self._kinds = [self.sync] if self._async is None else [self.sync, self._async]
        self._executor = executor
        self._is_async = is_async
        self._sought: set[str] = set()
        self._share = 0.5  # of async jobs in a claim
        self._returned = 0  # by the last claim
        self._pause = PAUSE
        self._look_at = 0.0

    @property
    def target(self) -> int:
        """How many jobs the worker should hold."""
        return sum(kind.target for kind in self._kinds)

    def learn(self, results: Iterable[Result]) -> None:
        """Take the run times of finished jobs into account."""
        if self._async is None:
            self.sync.learn([result.ran for result in results])
            return
        seconds: tuple[list[float], list[float]] = ([], [])
        for result in results:
            seconds[bool(self._is_async(result.row.task_path))].append(result.ran)
        self.sync.learn(seconds[False])
        self._async.learn(seconds[True])

    def wanted(self, held: int, kept: int) -> int:
        """Return how many jobs to claim now. ``kept``: so many of the ``held`` are not dispatched yet."""
        if self._async is None:
            return self.sync.wanted(held)
        self._count(held)
        share = self._share
        of_sync = self.sync.wanted(self.sync.held + round(kept * (1 - share)))
        of_async = self._async.wanted(self._async.held + round(kept * share))
        if of_sync and of_async:
            fitting = [room / part for room, part in ((of_sync, 1 - share), (of_async, share)) if part]
            return max(1, int(min(*fitting, max(of_sync, of_async))))
        if not (of_sync or of_async) or monotonic() < self._look_at:
            return 0
        return min(of_sync + of_async + 2 * self._returned, max(BATCH, of_async))

    def weigh(self, rows: list[Claimed]) -> None:
        """Take the size of claimed rows into account."""
        for kind in self._kinds:
            kind.weigh(rows)

    def split(self, rows: list[Claimed]) -> tuple[list[Claimed], list[Claimed]]:
        """Return the rows to run, and those for which there is no room."""
        now = monotonic()
        if self._async is None:
            self.sync.ahead_since = now
            return rows, []
        self._count(0)
        known = of_async = 0
        runs: list[Claimed] = []
        returned: list[Claimed] = []
        for row in rows:
            is_async = self._is_async(row.task_path)
            known += is_async is not None
            of_async += bool(is_async)
            kind = self._async if is_async else self.sync
            if kind.held < kind.target:
                kind.held += 1
                if kind.held > kind.slots:
                    kind.ahead_since = now
                runs.append(row)
                continue
            returned.append(row)
            if is_async is None and row.task_path not in self._sought:
                self._sought.add(row.task_path)
                self._executor.find_task(row.task_path)
        if known:
            newest = of_async / known
            # More sync jobs than expected count at once: jobs that cannot start would have to be requeued.
            self._share += (newest - self._share) * (1.0 if newest < self._share else _SHARE_WEIGHT)
        self._returned = len(returned)
        if returned:
            self._pause = PAUSE if runs else min(2 * self._pause, LONGEST_PAUSE)
            self._look_at = now + self._pause
        return runs, returned

    def is_filled_by(self, task_paths: list[str]) -> bool:
        """Return whether jobs of these tasks leave no place for others of the same kind."""
        of_async = 0 if self._async is None else sum(map(bool, map(self._is_async, task_paths)))
        is_full = self._async is not None and of_async >= self._async.slots
        return is_full or len(task_paths) - of_async >= self.sync.slots

    def hoards(self, held: int, now: float) -> bool:
        """Return whether jobs claimed ahead should be requeued, because jobs take longer than expected."""
        self._count(held)
        return sum(kind.hoards(now) for kind in self._kinds) > 0

    def _count(self, held: int) -> None:
        if self._async is None:
            self.sync.held = held
        else:
            self.sync.held, self._async.held = self._executor.held()


def _moved(average: float, newest: float) -> float:
    """Return the next average. It rises at once and falls gradually: too many jobs are worse than too few."""
    return newest if newest > average else average + (newest - average) * _BATCH_WEIGHT
