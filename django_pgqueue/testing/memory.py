"""The jobs of dummy mode, which exist only in the memory of this process."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import count
from typing import TYPE_CHECKING

from ..lifecycle.enqueue import new_job

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..lifecycle.calls import Call
    from ..models import Job
    from ..unique import EnqueueOutcome

__all__ = ["JOBS", "Memory", "clear"]

JOBS: list[Job] = []
"""What was enqueued in dummy mode, the oldest first."""
_numbers = count(1)


def clear() -> None:
    """Forget the jobs."""
    JOBS.clear()


class Memory:
    """Takes calls, and keeps their jobs (`lifecycle.calls.Keeper`)."""

    def one(self, call: Call) -> Job:
        """Keep the job of a call. It is not saved, and nothing else knows its id."""
        options = call.options
        now = datetime.now(UTC)
        run_after = options.run_after or now + timedelta(seconds=options.delay or 0.0)
        expires_at = None
        if options.expires_after is not None:
            expires_at = max(now, run_after) + timedelta(seconds=options.expires_after)
        job = new_job(call, next(_numbers), max(now, run_after), expires_at, now)
        JOBS.append(job)
        return job

    def many(self, calls: Iterable[Call]) -> list[tuple[int, EnqueueOutcome]]:
        """Keep the jobs of calls, all or none."""
        return [(self.one(call).pk, "created") for call in list(calls)]
