"""The notifications that a worker receives by LISTEN. It checks now and then that they arrive, by notifying
itself.

    silent --prove--> sent --heard--> silent
    sent --prove, and still not heard--> deaf: the connection is replaced

A session can run statements and still be deaf: a pooler or proxy may have given it another process of the
server, or a user may have run DISCARD ALL in it. No statement fails then, but from there on every job waits
for the next poll.

Every role that may connect can notify any channel, so a notification is only a reason to look at rows. What
no worker has sent is passed over.

NOTIFY takes a lock on the whole database until the end of the commit. So a proof is rare, is sent in a
statement that is needed anyway, and its commit does not wait for the disk. All workers receive it, but none
takes it as a sign of new jobs. Behind a transaction pooler nobody listens, and there is nothing to prove.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg

from ...encoding import whole_number

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...postgres.session import Session

ORDERS = ("pause", "drain")  # the payloads that are about every worker
PROOF = "proof"  # the first word of the payload: `proof <worker> <number>`


class DeafSessionError(psycopg.OperationalError):
    """The session does not receive notifications and must be replaced."""


class Notifier:
    """Receive the notifications of one worker's session, and check that they arrive.

    ``on_cancel`` is called with the id of a job that may have been asked to stop, ``on_call`` with the name
    of a queue that may have jobs (empty: any queue), and ``on_order`` when something may have been paused or
    resumed, or a worker asked to end.
    """

    def __init__(
        self,
        worker: int,
        on_cancel: Callable[[int], object],
        on_call: Callable[[str], object],
        on_order: Callable[[], object] = int,
    ) -> None:
        self._worker = worker
        self._on_cancel = on_cancel
        self._on_call = on_call
        self._on_order = on_order
        self._listens = False
        self._number = 0
        self._sent_at: float | None = None
        self._proven = False  # in this session

    def connected(self, session: Session) -> None:
        """Start to LISTEN in a new session, and stop waiting for a proof that the last session sent."""
        self._sent_at = None
        self._proven = False
        self._listens = not session.pooled
        if self._listens:
            channel = session.value("SELECT pgqueue_channel_v1()")
            session.connection.execute(f'LISTEN "{channel}"')

    def hear(self, session: Session) -> None:
        """Read the notifications that have arrived, and pass them on."""
        if session.pooled:
            return
        for notification in session.notifications():
            word, _, rest = notification.payload.partition(" ")
            if word == "cancel":
                if (job_id := whole_number(rest)) is not None:
                    self._on_cancel(job_id)
            elif word in ORDERS:
                self._on_order()
            elif word == PROOF:
                self.heard(notification.payload)
            else:
                self._on_call(rest)

    @property
    def hears(self) -> bool:
        """Whether the last proof has arrived."""
        return self._listens and self._proven and self._sent_at is None

    def prove(self, now: float) -> str | None:
        """Return the next proof, which the worker is to send to itself; None if it does not listen. ``now``:
        seconds of the monotonic clock.

        Raise ``DeafSessionError`` if the last one has not been received. A worker that was suspended does not
        raise it by mistake: each turn of the producer first reads what has arrived in the meantime.
        """
        if not self._listens:
            return None
        if self._sent_at is not None:
            raise DeafSessionError(
                "the session does not receive notifications: the one that it sent to itself "
                f"{now - self._sent_at:.0f} s ago has not arrived. The session is replaced; if this happens "
                "repeatedly, check whether there is a pooler or proxy in between"
            )
        self._number += 1
        self._sent_at = now
        return f"{PROOF} {self._worker} {self._number}"

    def heard(self, payload: str) -> None:
        """Note that a proof has arrived, which may be another worker's."""
        if payload == f"{PROOF} {self._worker} {self._number}":
            self._sent_at = None
            self._proven = True
