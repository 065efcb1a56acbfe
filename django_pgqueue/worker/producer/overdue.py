"""What happens when a job does not end after its timeout: only the end of the process ends it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ... import conf

if TYPE_CHECKING:
    from ..executor.running_job import RunningJob
    from ..waker import Waker
    from .in_flight import InFlight
    from .lifetime import Lifetime

__all__ = ["Overdue"]

logger = logging.getLogger(__name__)


class Overdue:
    """Lets the other jobs finish and then has the process replaced. Called on any thread."""

    def __init__(self, in_flight: InFlight, lifetime: Lifetime, waker: Waker, grace: float) -> None:
        self._in_flight = in_flight
        self._lifetime = lifetime
        self._waker = waker
        self._grace = grace

    def __call__(self, running: RunningJob) -> None:
        """Give up on a job that still runs after its timeout and the grace period."""
        # Not an error: the job's own line says whether it failed, and why.
        logger.warning(
            "job %s still runs %g s after its timeout: this process finishes its other jobs and is replaced",
            running.row.id,
            conf.current().timeout_grace,
        )
        self._in_flight.overdue[running.row.id] = running
        self._lifetime.replace(self._grace)
        self._waker.interrupt()
