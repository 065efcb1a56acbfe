"""What follows a claim that found nothing: search for new ranges, claim what is found, or wait.

nothing --search--> due: claim; still nothing, or not due: announced and asleep (``idle``)
nothing, but the gate moved jobs --> look again at once, since others may be claimable now
nothing, although jobs are due: their keys or queues are busy --> look again after a short pause
in burst mode: a short pause while jobs run, since they may enqueue more; then it is exhausted
"""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...lifecycle.claimed import Claimed
    from ...session import Session
    from .claimer import Claimer
    from .idle import Idle
    from .in_flight import InFlight
    from .notifier import Notifier

__all__ = ["Looks"]

BURST_PAUSE = 0.02  # seconds between two looks while the last jobs of a burst run
KEY_PAUSE = 0.02
"""Seconds until a look at jobs that the gate left where they are: another worker is deciding about their
key."""
ROOM_PAUSE = 0.05
"""Seconds until a look at a queue that has no room. Nobody tells a worker when it has."""


class Looks:
    """The looks of one producer that come after a claim."""

    def __init__(
        self, claimer: Claimer, idle: Idle, notifier: Notifier, in_flight: InFlight, *, burst: bool
    ) -> None:
        self._claimer = claimer
        self._idle = idle
        self._notifier = notifier
        self._in_flight = in_flight
        self._burst = burst
        self.exhausted = False
        """Whether nothing was due and no job ran, at the last look in burst mode."""

    def further(self, session: Session, room: Callable[[Session, float], int]) -> list[Claimed]:
        """Search for new ranges after the known ones gave nothing. Return what is claimed there.

        ``room``: returns how many jobs to claim at a time of the monotonic clock. It may ask the server.
        """
        if self._claimer.take_refusals().moved:
            self._idle.pause(monotonic(), 0.0)
            return []
        thorough = self._burst and not self._in_flight
        due, next_due = self._claimer.search(session, thorough=thorough)
        limit = room(session, monotonic()) if due else 0
        if limit and (rows := self._claimer.claim(session, limit)):
            return rows
        refusals = self._claimer.take_refusals()
        if self._burst:
            # A running job may enqueue more: the worker looks again when the last one has ended.
            self.exhausted = not due and not self._in_flight
            self._idle.pause(monotonic(), BURST_PAUSE)
        elif any(refusals):
            self._idle.pause(monotonic(), 0.0 if refusals.moved else KEY_PAUSE)
        elif due and self._claimer.queue_limits:
            self._idle.pause(monotonic(), ROOM_PAUSE)
        else:
            self._idle.nothing_found(session, monotonic(), next_due, hears=self._notifier.hears)
        return []
