"""What a worker does that has room but no jobs: it tells the enqueuers that it sleeps, and looks again.

    awake --nothing found--> announced (holds the sleepers' lock) --looked at 5, 20, 60, 200 ms--> asleep
    announced, asleep --notified, poll interval over, next job due--> look; found: awake

Enqueuers send a NOTIFY only if somebody holds the sleepers' lock, and only one of them at a time
(``sql/wake_v1.sql``). Race: a job may be committed by one that saw no sleeper, or that left the NOTIFY to
another, and become visible after the first look. Hence the looks after the announcement: measured with 32
clients that overlap, jobs later than 100 ms were 176 of 192 without them and 0 of 496 with them. What is
later still, the poll finds. Notifications are read before a look, never after it: one read afterwards might
be of a job that the look has missed.

Behind a transaction pooler there are no session locks and no notifications: the worker polls.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...session import Session

__all__ = ["Idle"]

LOOKS = (0.005, 0.02, 0.06, 0.2)  # seconds after the announcement


class Idle:
    """Whether the worker sleeps, and when it should look next."""

    def __init__(self, queues: tuple[str, ...], poll_interval: float) -> None:
        self._names = list(queues) or [""]  # the empty name: sleeps for every queue
        self._poll_interval = poll_interval
        self._keys: list[int] = []
        self._locked = False
        self.called = False
        """Whether a notification has come since the last look: there is probably a job."""
        self._announced_at: float | None = None
        self._looks = 0
        self._next_look = 0.0

    @property
    def announced(self) -> bool:
        """Whether this worker holds the sleepers' lock."""
        return self._announced_at is not None

    def connected(self, session: Session) -> None:
        """A new session: no lock is held any more."""
        self._announced_at = None
        self._locked = False
        self._next_look = 0.0
        if session.pooled:
            return
        keys = session.rows(
            "SELECT pgqueue_lock_key_v1('sleep', name) FROM unnest(%s::text[]) AS name", (self._names,)
        )
        self._keys = [key for (key,) in keys]

    def due(self, now: float) -> bool:
        """Whether it is time to look for jobs."""
        return now >= self._next_look

    def seconds_left(self, now: float) -> float:
        """Until the next look."""
        return max(0.0, self._next_look - now)

    def look_now(self) -> None:
        """Somebody called: look at once."""
        self.called = True
        self._next_look = 0.0

    def nothing_found(self, session: Session, now: float, next_due: float | None) -> None:
        """A look found no job. ``next_due``: seconds until the first job that waits for its time."""
        self.called = False
        if session.pooled:
            self._sleep(now, next_due)
        elif self._announced_at is None:
            if not self._locked:
                lock = "SELECT pg_advisory_lock_shared(key) FROM unnest(%s::bigint[]) AS key"
                session.run((lock, (self._keys,)))
                self._locked = True
            self._announced_at = now
            self._looks = 0
            self._next_look = now  # the first look after the announcement comes at once
        elif self._looks < len(LOOKS):
            self._next_look = self._announced_at + LOOKS[self._looks]
            self._looks += 1
        else:
            self._sleep(now, next_due)

    def found(self) -> None:
        """A look found jobs: the worker is awake."""
        self.called = False
        self._announced_at = None

    def release(self) -> tuple[str, tuple[list[int]]] | None:
        """The statement that lets the sleepers' lock go once the worker is awake; it rides with the claim.

        Advisory locks are counted: it is taken at most once, and let go once.
        """
        if not self._locked or self._announced_at is not None:
            return None
        self._locked = False
        return "SELECT pg_advisory_unlock_shared(key) FROM unnest(%s::bigint[]) AS key", (self._keys,)

    def pause(self, now: float, seconds: float) -> None:
        """Do not look again for a while."""
        self._next_look = now + seconds

    def _sleep(self, now: float, next_due: float | None) -> None:
        pause = self._poll_interval * random.uniform(0.8, 1.0)
        if next_due is not None:
            pause = min(pause, max(0.001, next_due))
        self._next_look = now + pause
