"""Remember when this process first met a job whose task it does not know."""

from __future__ import annotations

from time import monotonic

__all__ = ["FirstMet"]

_MOST = 100_000  # jobs to remember; there is a limit because they may end in other workers


class FirstMet:
    """The times by job. Used by many threads at the same time."""

    def __init__(self) -> None:
        self._times: dict[int, float] = {}

    def seconds_since(self, job_id: int) -> float:
        """Return the seconds since the first call for a job."""
        if len(self._times) > _MOST:
            self._times.clear()
        now = monotonic()
        return now - self._times.setdefault(job_id, now)
