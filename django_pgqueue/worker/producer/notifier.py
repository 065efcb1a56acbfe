"""What the worker hears, by LISTEN, and the proof that it still hears: now and then it notifies itself.

    silent --prove--> sent --heard--> silent
    sent --prove, and still not heard--> deaf: the connection is replaced

A session can work and be deaf all the same: a pooler or proxy has given it another process of the server, or
somebody has run DISCARD ALL in it. No statement fails then; jobs only wait for the poll, for ever.

NOTIFY takes a lock on the whole database until the end of the commit. So a proof is rare, rides with a round
trip that is made anyway, and its commit does not wait for the disk. All workers hear it; to none of them does
it mean that there are jobs. Behind a transaction pooler nobody listens, and there is nothing to prove.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...session import Session

__all__ = ["DeafSessionError", "Notifier"]

PROOF = "proof"  # the first word of the payload: `proof <worker> <number>`


class DeafSessionError(psycopg.OperationalError):
    """The session does not hear notifications; a new one is needed."""


class Notifier:
    """Hears the notifications of one worker's session, and knows whether it does.

    ``on_cancel`` is called with the id of a job that is to stop, ``on_call`` when there may be jobs.
    """

    def __init__(
        self, worker: int, on_cancel: Callable[[int], object], on_call: Callable[[], object]
    ) -> None:
        self._worker = worker
        self._on_cancel = on_cancel
        self._on_call = on_call
        self._listens = False
        self._number = 0
        self._sent_at: float | None = None

    def connected(self, session: Session) -> None:
        """A new session: LISTEN. What was sent over the last one is not awaited any more."""
        self._sent_at = None
        self._listens = not session.pooled
        if self._listens:
            channel = session.value("SELECT pgqueue_channel_v1()")
            session.connection.execute(f'LISTEN "{channel}"')

    def hear(self, session: Session) -> None:
        """Read what has come, and pass it on."""
        if session.pooled:
            return
        for notification in session.notifications():
            word, _, rest = notification.payload.partition(" ")
            if word == "cancel" and rest.isdigit():
                self._on_cancel(int(rest))
            elif word == PROOF:
                self.heard(notification.payload)
            else:
                self._on_call()

    def prove(self, now: float) -> list[tuple[str, Any]]:
        """The next proof, to be sent with other statements. ``now``: seconds of the monotonic clock.

        Raises ``DeafSessionError`` if the last one has not been heard. A worker that stood still has read
        what came meanwhile before it asks: each turn of the producer begins with that.
        """
        if not self._listens:
            return []
        if self._sent_at is not None:
            raise DeafSessionError(
                "the session is deaf: the notification that it sent to itself "
                f"{now - self._sent_at:.0f} s ago has not come. It is replaced; if this happens again and "
                "again, look for a pooler or proxy in between"
            )
        self._number += 1
        self._sent_at = now
        payload = f"{PROOF} {self._worker} {self._number}"
        return [("SELECT pg_notify(pgqueue_channel_v1(), %s)", (payload,))]

    def heard(self, payload: str) -> None:
        """A proof has come, ours or another worker's."""
        if payload == f"{PROOF} {self._worker} {self._number}":
            self._sent_at = None
