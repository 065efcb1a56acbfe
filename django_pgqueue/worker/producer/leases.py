"""Running jobs whose rows do not say that this worker has them.

A crash of the server may lose a claim, since its commit is asynchronous. And the jobs of a process that was
suspended for longer than its lease are given back. Their tasks run on.

    held --the row is as it was before the claim--> claimed again under the same lease
    held --otherwise, at two looks in a row--> lost: asked to stop. What its task returns is refused, nothing
    waits for it, and its place is taken until it ends
    all places taken by lost jobs, or a lost one claimed here once more --> the process is replaced
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...formatting import get_logger

if TYPE_CHECKING:
    from ...jobs.claim import Claimed
    from ...postgres.session import Session
    from ..executor.runner import Runner
    from ..executor.running_job import RunningJob
    from .claimer import Claimer
    from .demand import OneKind, TwoKinds
    from .in_flight import InFlight, Returns
    from .lifetime import Lifetime

logger = get_logger(__name__)

_FREE_SQL = """
    SELECT id, attempts, crash_count FROM pgqueue_job_live
    WHERE id = ANY (%s::bigint[]) AND status IN ('pending', 'retry')
"""


class Leases:
    """What one worker process still has of the jobs that run in it. Only the producer uses it."""

    def __init__(
        self,
        runner: Runner,
        claimer: Claimer,
        in_flight: InFlight,
        returns: Returns,
        kinds: OneKind | TwoKinds,
        lifetime: Lifetime,
        grace: float,
    ) -> None:
        self._runner = runner
        self._claimer = claimer
        self._in_flight = in_flight
        self._returns = returns
        self._kinds = kinds
        self._lifetime = lifetime
        self._grace = grace
        self._suspects: set[RunningJob] = set()

    def connected(self, session: Session) -> None:
        """Claim again what the server has lost in a crash, before this worker claims anything else, which may
        have the same limit keys.
        """
        self._claim_again(session, self._in_flight.rows())

    def look(self, session: Session, missing: list[RunningJob]) -> None:
        """``missing``: running jobs that the table does not show as running under their leases."""
        missing = [job for job in missing if job.needs_lease and job.row.id not in self._in_flight.lost]
        # An isolated job may have given up its lease by itself, which only its own process knows.
        again = self._claim_again(session, [job.row for job in missing if job.on_stop is None])
        suspects = {job for job in missing if job.row.id not in again}
        # Race: a job may have written its end by itself, and this process is about to hear of it.
        for job in suspects & self._suspects:
            self._lose(job)
        self._suspects = suspects

    def sort_out(self, rows: list[Claimed]) -> list[Claimed]:
        """Return those of the claimed rows that do not run here under an older lease. Requeue the others:
        this process would run them twice at once.
        """
        twice = [row for row in rows if self._runs_already(row)]
        if not twice:
            return rows
        self._returns.release(twice, "an earlier run of it has not ended in this process")
        self._replace("it still runs a job that it has claimed once more")
        return [row for row in rows if row not in twice]

    def _runs_already(self, row: Claimed) -> bool:
        running = self._runner.running_one(row.id)
        return running is not None and running.needs_lease and running.on_stop is None

    def _claim_again(self, session: Session, rows: list[Claimed]) -> set[int]:
        if not rows:
            return set()
        found = session.rows(_FREE_SQL, ([row.id for row in rows],))
        free = {(job_id, attempts + 1, crashes) for job_id, attempts, crashes in found}
        rows = [row for row in rows if (row.id, row.attempts, row.crash_count) in free]
        again = self._claimer.claim_again(session, rows) if rows else set()
        if again:
            logger.warning("claimed running jobs again, whose claims the server has lost: %d", len(again))
        return again

    def _lose(self, job: RunningJob) -> None:
        logger.warning(
            "job %s (%s) is lost: it was given back while its task ran. The task is asked to stop, and what "
            "it returns does not count.",
            job.row.id,
            job.row.task_path,
        )
        self._in_flight.lose(job.row)
        job.ask_to_stop()
        if self._kinds.is_filled_by([row.task_path for row in self._in_flight.lost.values()]):
            self._replace("lost jobs take all its threads")

    def _replace(self, why: str) -> None:
        if not self._lifetime.stopping:
            logger.warning("this process finishes its other jobs and is replaced: %s", why)
            self._lifetime.replace(self._grace)
