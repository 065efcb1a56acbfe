"""How much to exchange with the server: how many jobs to claim, and how many outcomes make a report."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .completer import Completer
    from .exchange import Exchange
    from .idle import Idle
    from .in_flight import InFlight
    from .kinds import OneKind, TwoKinds
    from .lifetime import Lifetime
    from .pauses import Pauses

__all__ = ["LARGE", "Demand"]

LARGE = 50
"""So many outcomes take the server longer than Python needs to prepare for their exchange."""


class Demand:
    """What one worker wants next, seen from the jobs that it holds."""

    def __init__(
        self,
        lifetime: Lifetime,
        kinds: OneKind | TwoKinds,
        idle: Idle,
        in_flight: InFlight,
        completer: Completer,
        exchange: Exchange,
        pauses: Pauses,
    ) -> None:
        self._lifetime = lifetime
        self._kinds = kinds
        self._idle = idle
        self._in_flight = in_flight
        self._completer = completer
        self._exchange = exchange
        self._pauses = pauses

    def jobs(self) -> int:
        """Return how many jobs the worker has room for."""
        if self._lifetime.stopping:
            return 0
        limit = self._pauses.limit(self._kinds.wanted(self._held(), self._exchange.kept))
        left = self._lifetime.jobs_left()
        return limit if left is None else min(limit, left)

    def jobs_now(self, now: float) -> int:
        """Return how many jobs to claim now."""
        return self.jobs() if self._idle.due(now) else 0

    def outcomes(self) -> int:
        """Return how many outcomes are enough for a report."""
        if not self._held() or self._lifetime.stopping:
            return 1
        return max(1, self._kinds.target // 4)

    def goes_on_at_once(self, now: float) -> bool:
        """Return whether the next report and claim can be sent now, and are large enough to be worth it."""
        if self._lifetime.jobs_left() is not None:
            return False  # only dispatched jobs are counted
        return len(self._completer) >= max(LARGE, self.outcomes()) and self.jobs_now(now) > 0

    def _held(self) -> int:
        """Return how many jobs are claimed and have not ended."""
        return len(self._in_flight) + self._exchange.more_in_flight - len(self._completer)
