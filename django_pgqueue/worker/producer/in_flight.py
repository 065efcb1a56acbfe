"""The jobs in flight in a worker process, which are claimed but not yet reported.

taken --the task starts--> begun (see ``started_jobs``) --reported--> gone
begun --another worker has it (see ``leases``)--> lost: not in flight any more, but its task still runs
begun --still runs after its timeout and the grace period--> overdue: only the end of the process ends it
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ...formatting import get_logger
from ...jobs.finish import Outcome
from ..executor import outcomes
from ..executor.outcomes import Result

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from ...jobs.claim import Claimed
    from ..executor.runner import Runner
    from ..executor.running_job import RunningJob
    from ..executor.threads import Executor
    from ..processes.started_jobs import StartedJobs
    from .completer import Completer
    from .pauses import Pauses

logger = get_logger(__name__)


class Held(NamedTuple):
    """A job in flight."""

    row: Claimed
    since: float  # monotonic


class InFlight:
    """The jobs by id. Only the producer uses this, except for ``overdue``."""

    def __init__(self, started_jobs: StartedJobs) -> None:
        self.overdue: dict[int, RunningJob] = {}
        """The jobs that do not end."""
        self.lost: dict[int, Claimed] = {}
        """The jobs that still run, but not for this worker."""
        self._started_jobs = started_jobs
        self._jobs: dict[int, Held] = {}

    def __len__(self) -> int:
        return len(self._jobs)

    def __iter__(self) -> Iterator[int]:
        return iter(self._jobs)

    @property
    def places(self) -> int:
        """How many places for jobs are taken."""
        return len(self._jobs) + len(self.lost)

    def rows(self) -> list[Claimed]:
        """Return the rows of all jobs."""
        return [held.row for held in self._jobs.values()]

    def lose(self, row: Claimed) -> None:
        """Note that a job which still runs is not this worker's any more."""
        self.drop(row)
        self.lost[row.id] = row

    def take(self, rows: list[Claimed], now: float) -> None:
        """Add jobs that were claimed."""
        for row in rows:
            self._jobs[row.id] = Held(row, now)

    def drop(self, row: Claimed) -> Held | None:
        """Remove a job that was reported, and return it. Return None if it is not held under this lease: a
        job that lost its lease may have been claimed again in the meantime.
        """
        if (lost := self.lost.get(row.id)) is not None and lost.lease == row.lease:
            del self.lost[row.id]
        held = self._jobs.get(row.id)
        if held is None or held.row.lease != row.lease:
            return None
        del self._jobs[row.id]
        self.overdue.pop(row.id, None)
        self._started_jobs.end(row.id)
        return held

    def all_begun(self) -> bool:
        """Return whether none of them waits for its start."""
        return self._started_jobs.count >= len(self._jobs)

    def is_through(self) -> bool:
        """Return whether only overdue jobs are left, or none."""
        return self._jobs.keys() <= self.overdue.keys()

    def rest(self, reported: Collection[int]) -> list[Claimed]:
        """Return the jobs that are neither ``reported`` nor overdue."""
        return [
            held.row
            for job_id, held in self._jobs.items()
            if job_id not in reported and job_id not in self.overdue
        ]

    def may_have_begun(self, row: Claimed) -> bool:
        """Return whether the task may have started. True if that could not be noted."""
        begun = self._started_jobs.begun()
        return begun is None or row.id in begun


# ----------------------------------------------------------------------------
# Jobs that this worker has claimed but will not run. They are requeued, or put aside because their task is
# paused, without counting an attempt.


class Returns:
    """Adds these jobs to the outcomes of the next report."""

    def __init__(
        self,
        worker: int,
        runner: Runner,
        executor: Executor,
        in_flight: InFlight,
        completer: Completer,
        pauses: Pauses,
    ) -> None:
        self._worker = worker
        self._runner = runner
        self._executor = executor
        self._in_flight = in_flight
        self._completer = completer
        self._pauses = pauses

    def release(self, rows: list[Claimed], reason: str | None = None) -> None:
        """Requeue rows that will not run here."""
        self._completer.add(
            [Result(row, Outcome(row.id, row.lease, "release", reason=reason)) for row in rows]
        )

    def put_aside(self, rows: list[Claimed]) -> list[Claimed]:
        """Return the rows that are not paused. Put aside those of paused tasks; requeue those of paused
        queues.
        """
        if not self._pauses:
            return rows
        tasks, stops = self._pauses.tasks, self._pauses.stops
        self._completer.add(
            [
                Result(row, Outcome(row.id, row.lease, "paused", reason=tasks[row.task_path]))
                for row in rows
                if row.task_path in tasks
            ]
        )
        rows = [row for row in rows if row.task_path not in tasks]
        self.release([row for row in rows if stops(row.queue_name)])
        return [row for row in rows if not stops(row.queue_name)]

    def put_unstarted_aside(self) -> None:
        """Do so with the rows in the executor that have not been started. The others stay there."""
        self._executor.submit(self.put_aside(self._executor.take_back()), 0.0)

    def release_unstarted(self) -> None:
        """Requeue the rows in the executor that have not been started."""
        self.release(self._executor.take_back())

    def abandon_rest(self) -> None:
        """At the end, requeue the jobs that still run. Fail those that must not run twice or are overdue."""
        rest = self._in_flight.rest(self._completer.ids())
        if rest:
            logger.warning("requeuing jobs that did not finish within the grace period: %d", len(rest))
            once = [row for row in rest if row.on_lost == "fail" and self._in_flight.may_have_begun(row)]
            self._completer.add([Result(row, outcomes.stopped(row, self._worker)) for row in once])
            self.release([row for row in rest if row not in once], "its worker was stopped")
        # Last of all: such a job runs until the process ends, and its next attempt may start before that.
        overdue = list(self._in_flight.overdue.values())
        self._completer.add([self._runner.overdue(job) for job in overdue])
