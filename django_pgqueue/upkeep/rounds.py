"""Upkeep: short rounds that any supervisor may do at any time, so that no leader is needed.

Each round is one database function. It takes an advisory lock for its transaction or skips locked rows, so
two supervisors can run it at the same time without conflicts or double work.
"""

from __future__ import annotations

import logging
import random
from typing import TYPE_CHECKING

from .. import conf
from .recovery import BATCH, recover_dead, recover_strays

if TYPE_CHECKING:
    from ..session import Session

__all__ = ["Rounds", "tell_retention"]

logger = logging.getLogger(__name__)

SWEEP_EVERY = 10.0  # seconds
ROTATE_AT_MOST = 60.0  # seconds


class Rounds:
    """When this supervisor does each round next. Jitter spreads out the rounds of many supervisors."""

    def __init__(self) -> None:
        self._next_recovery = 0.0
        self._next_sweep = 0.0
        self._next_rotation = 0.0

    def run(self, session: Session, now: float) -> None:
        """Do the rounds that are due."""
        settings = conf.current()
        if now >= self._next_recovery:
            pause = settings.heartbeat * random.uniform(0.8, 1.2)
            self._next_recovery = now + (0.1 if recover_dead(session) >= BATCH else pause)
        if now >= self._next_sweep:
            session.refresh_plans()
            most = max(sweep(session), recover_strays(session))
            pause = 0.1 if most >= BATCH else SWEEP_EVERY * random.uniform(0.8, 1.2)
            self._next_sweep = now + pause
        if now >= self._next_rotation:
            turned = rotate(session)
            longest = min(ROTATE_AT_MOST, max(1.0, settings.retention.total_seconds() / 60))
            self._next_rotation = now + (1.0 if turned else longest * random.uniform(0.8, 1.2))


def tell_retention(session: Session) -> None:
    """Write RETENTION and FAILED_RETENTION to the ring's row, where the functions read them."""
    settings = conf.current()
    before = session.rows(
        "SELECT * FROM pgqueue_retain_v1(%s, %s)", (settings.retention, settings.failed_retention)
    )
    for retention, failed_retention in before:
        logger.warning(
            "retention changed from %s to %s, retention of failed jobs from %s to %s",
            retention, settings.retention, failed_retention, settings.failed_retention,
        )  # fmt: skip


def sweep(session: Session) -> int:
    """Delete old jobs from the kept leaf, and old statistics. Return the number of deleted jobs."""
    swept = session.value("SELECT pgqueue_sweep_v1(%s)", (BATCH,))
    longest = max(conf.current().retention, conf.current().failed_retention)
    session.run(("DELETE FROM pgqueue_stat WHERE minute < clock_timestamp() - %s", (longest,)))
    return int(swept)


def rotate(session: Session) -> bool:
    """Rotate the history ring if it is time. Return whether it did something, so that there may be more to
    do.
    """
    did: str = session.value("SELECT pgqueue_rotate_v1()")
    if did.startswith(("emptied", "moved", "restarted")):
        logger.info("history: %s", did)
        return True
    return False
