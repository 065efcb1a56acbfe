"""When to reconnect after a connection was lost or refused, and what to log in the meantime.

    works --failure--> outage: pauses of 0.1, 0.2, 0.4 ... seconds up to the longest, each with jitter
    outage --it works again, not only connects--> works: the next failure is tried again at once

A server that accepts connections but refuses the work (its disk is full) must not be called ten times a
second. This is why an outage ends with a round of work that succeeded. An outage may last for hours, so the
same message is logged only once a minute.
"""

from __future__ import annotations

import random
from time import monotonic
from typing import TYPE_CHECKING

import psycopg

from ..formatting import get_logger
from ..postgres.session import SUPERVISOR, StandbyError, accepts_connections, connect, is_standby

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..postgres.session import Session

logger = get_logger(__name__)

FIRST_PAUSE = 0.1  # seconds; with jitter from half of it
LONGEST_PAUSE = 5.0
SAY_AGAIN = 60.0
PATIENCE = 60.0  # seconds for a server that starts together with the worker


class Outage:
    """The attempts of a process to reach its database again. ``longest``: the longest pause, in seconds."""

    def __init__(self, longest: float = LONGEST_PAUSE) -> None:
        self._longest = longest
        self._pause = 0.0
        self._said = ""
        self._say_again_at = 0.0

    def tell(self, what: str, error: Exception) -> None:
        """Log a failure, unless the same message was logged less than a minute ago."""
        text = f"{what}: {str(error).strip() or type(error).__name__}"
        now = monotonic()
        if text != self._said or now >= self._say_again_at:
            self._said = text
            self._say_again_at = now + SAY_AGAIN
            logger.warning("%s", text)

    def pause(self) -> float:
        """Return the seconds until the next attempt."""
        self._pause = min(self._longest, 2 * self._pause or FIRST_PAUSE)
        return self._pause * random.uniform(0.5, 1.0)

    def over(self) -> None:
        """Note that everything works. This is cheap if there was no outage."""
        if self._pause:
            self._pause = 0.0
            self._said = ""
            logger.info("connected again")


def wait_for_primary(
    alias: str, outage: Outage, sleep: Callable[[float], None], stopped: Callable[[], bool]
) -> Session | None:
    """Open the first session of a supervisor. Wait while the server is a standby, and for a minute while it
    starts or does not answer; return None if stopped.

    Raise ``psycopg.OperationalError`` if the server refuses, or if none answers in this time. A server that
    becomes unreachable later may be a standby that restarts in order to become the primary.
    """
    waits = accepts = False
    patient_until = monotonic() + PATIENCE
    while not stopped():
        try:
            return connect(alias, name=SUPERVISOR)
        except psycopg.OperationalError as error:
            standby = isinstance(error, StandbyError) or is_standby(alias)
            waits = waits or standby
            # Race: it may have become ready after it had refused. So what counts is the next attempt.
            accepted, accepts = accepts, accepts_connections(alias)
            coming = monotonic() < patient_until and not (accepted and accepts)
            if not (waits or coming):
                raise
            if standby or not accepts:
                outage.tell("no connection yet", StandbyError() if standby else error)
            sleep(outage.pause())
    return None
