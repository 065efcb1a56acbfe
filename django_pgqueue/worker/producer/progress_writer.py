"""Write what running jobs tell, at most once a second, for all jobs of the process in one statement."""

from __future__ import annotations

import logging
from time import monotonic
from typing import TYPE_CHECKING

import psycopg

from ...lifecycle.arrays import number_array, text_array
from ..executor.progress import WRITE_EVERY

if TYPE_CHECKING:
    from ...session import Session
    from ..executor.progress import Changed, Told

__all__ = ["WRITE_SQL", "ProgressWriter"]

logger = logging.getLogger(__name__)

WRITE_SQL = (
    "SELECT pgqueue_write_progress_v1(%s::bigint[], %s::bigint[], %s::text[], %s::double precision[],"
    " %s::double precision[], %s::text[])"
)


class ProgressWriter:
    """Belongs to one thread, which also reports the outcomes of these jobs, or does not report at all."""

    def __init__(self, changed: Changed) -> None:
        self._changed = changed
        self._wrote = 0.0

    def seconds_left(self, now: float) -> float:
        """Return the seconds until there is something to write."""
        if not self._changed:
            return float("inf")
        return 0.0 if self._changed.is_urgent else max(0.0, self._wrote + WRITE_EVERY - now)

    def write_if_due(self, session: Session, now: float) -> None:
        """Write what has changed, if a second has passed, or if an outcome must not be reported before."""
        if self._changed and not self.seconds_left(now):
            self.write(session)

    def write_if_urgent(self, session: Session) -> None:
        """Write what has changed if an outcome must not be reported before."""
        if self._changed.is_urgent:
            self.write(session)

    def write(self, session: Session) -> None:
        """Write what has changed. What cannot be written is written later, while its job runs."""
        self._wrote = monotonic()
        jobs = self._changed.take()
        tells = [job.take() for job in jobs]
        if not tells:
            return
        written: set[int] = set()
        try:
            written.update(session.value(WRITE_SQL, _parameters(tells)))
        except psycopg.errors.LockNotAvailable:
            # A task has written its own progress in SQL, in a transaction that is still open.
            logger.info("the progress of %d jobs is written later: a row is locked", len(tells))
        finally:
            for job, told in zip(jobs, tells, strict=True):
                if told.id not in written:
                    job.put_back(told)


def _parameters(tells: list[Told]) -> tuple[str, ...]:
    progress = [told.progress for told in tells]
    return (
        number_array([told.id for told in tells]),
        number_array([told.lease for told in tells]),
        text_array([told.step for told in tells]),
        number_array([each and each.done for each in progress]),
        number_array([each and each.total for each in progress]),
        text_array([each and each.note for each in progress]),
    )
