"""What a worker does when it has room but no jobs: it announces that it sleeps, and looks again.

    awake --nothing found--> announced (holds the sleepers' lock) --looked at 5, 20, 60, 200 ms--> asleep
    announced, asleep --notified, poll interval over, next job due--> look; found: awake

Enqueuers send a NOTIFY only if a worker holds the sleepers' lock, and only one of them does so at a time
(``_pgqueue_wake``). Race: an enqueuer that saw no sleeper, or that left the NOTIFY to another, may commit a
job that becomes visible after the worker's first look. This is why the worker looks again after the
announcement. The poll finds jobs that are later still.

Unless ``POLL_INTERVAL`` is set, a worker that is known to receive its notifications polls after 1, 2, 4 and 8
seconds, and then every 10 seconds; more rarely if a search through all queues is costly. The pauses begin
with the short ones whenever a job or a notification has come, because a job that the looks have missed is
committed soon after that. Behind a transaction pooler there are no session locks and no notifications, so the
worker polls every second.
"""

from __future__ import annotations

import random
from time import monotonic

from ...conf import POLL_INTERVAL
from ...postgres.session import Session

LOOKS = (0.005, 0.02, 0.06, 0.2)  # seconds after the announcement
SOONEST = 0.001  # seconds until a poll for a job that comes due
LONGEST_POLL = 10.0  # seconds
LONGEST_REST = 50.0  # seconds; triggers announce jobs that are due within a minute
_LOCKS = "SELECT {}(_pgqueue_lock_key('sleep', name)) FROM unnest(%s::text[]) AS name"


class Idle:
    """Whether the worker sleeps, and when it should look next."""

    def __init__(self, queues: tuple[str, ...], poll_interval: float | None) -> None:
        self._names = list(queues) or [""]  # the empty name stands for every queue
        self._poll_interval = poll_interval
        self._pause = POLL_INTERVAL  # the next one of a worker that receives notifications
        self._locked = False
        self.called = False  # by a notification since the last look, so that there is probably a job
        self._announced_at: float | None = None
        self._looks = 0
        self._next_look = 0.0

    @property
    def announced(self) -> bool:
        """Whether this worker holds the sleepers' lock."""
        return self._announced_at is not None

    def connected(self) -> None:
        """Start with a new session, which does not hold a lock yet."""
        self._announced_at = None
        self._locked = False
        self._next_look = 0.0

    def seconds_left(self, now: float) -> float:
        """Return the seconds until it is time to poll for jobs."""
        return max(0.0, self._next_look - now)

    def look_now(self) -> None:
        """Look at once, because a notification has arrived."""
        self.called = True
        self._next_look = 0.0

    def nothing_found(
        self, session: Session, now: float, next_due: float | None, *, hears: bool = False, rest: float = 0.0
    ) -> None:
        """Handle a look that found no job. ``next_due``: seconds until the next is due. ``hears``: whether
        notifications are known to arrive. ``rest``: seconds to leave between searches of all queues.
        """
        if self.called or self._announced_at is None:
            self._pause = POLL_INTERVAL
        self.called = False
        if not session.pooled and self._announced_at is None:
            if not self._locked:
                session.run((_LOCKS.format("pg_advisory_lock_shared"), (self._names,)))
                self._locked = True
            self._announced_at = now
            self._looks = 0
            self._next_look = now  # the first look after the announcement comes at once
        elif self._announced_at is not None and self._looks < len(LOOKS):
            self._next_look = self._announced_at + LOOKS[self._looks]
            if next_due is not None and now + next_due < self._next_look:
                # A job is due earlier. This look follows afterwards. The jobs that wait for a rate come due
                # one after the other, so each of them would start late.
                self._next_look = now + max(SOONEST, next_due)
            else:
                self._looks += 1
        else:
            pause = self._poll_interval or POLL_INTERVAL
            if self._poll_interval is None and hears and not session.pooled:
                pause = self._pause
                self._pause = min(2 * pause, LONGEST_POLL)
                pause = max(pause, min(rest, LONGEST_REST))
            pause *= random.uniform(0.8, 1.0)
            if next_due is not None:
                pause = min(pause, max(SOONEST, next_due))
            self._next_look = now + pause

    def found(self) -> None:
        """Note that a look found jobs, so the worker is awake."""
        self.called = False
        self._announced_at = None

    def release(self) -> tuple[str, tuple[list[str]]] | None:
        """Return the statement that releases the sleepers' lock when the worker is awake.

        Advisory locks are counted, so the lock is taken at most once and released once.
        """
        if not self._locked or self._announced_at is not None:
            return None
        self._locked = False
        return _LOCKS.format("pg_advisory_unlock_shared"), (self._names,)

    def look_in(self, seconds: float) -> None:
        """Look again after so many seconds."""
        self._next_look = monotonic() + seconds
