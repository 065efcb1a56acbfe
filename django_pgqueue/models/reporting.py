"""``job.progress``: how far a job is, or how far it came before it failed."""

from __future__ import annotations

from typing import Any

from ..progress import HAS_PROGRESS, Progress, stored_progress

__all__ = ["Reporting"]


class Reporting:
    """The properties of ``Job`` about what its task reports."""

    @property
    def progress(self) -> Progress | None:
        """What its task has last reported; None if it has not reported anything, or is done or cancelled.

        For a failed job: how far its last attempt came. This makes a query for a live job that has reported
        something, unless it was read with ``select_related("live_progress")``.
        """
        job: Any = self
        if job.is_over:
            has_failed = job.status == job.Status.FAILED and job.errors
            return stored_progress(job.errors[-1].get("progress")) if has_failed else None
        if not job.marks & HAS_PROGRESS:
            return None
        row = getattr(job, "live_progress", None)  # the job may have ended since it was read
        return None if row is None else stored_progress(vars(row))
