"""Upkeep: short rounds that any supervisor may do at any time, so that there is no leader to elect.

Each round is one function of the database that takes an advisory lock for its transaction, or skips what
others have locked: two supervisors at once do no harm and no double work.
"""

from __future__ import annotations

import logging
import random
from typing import TYPE_CHECKING

from .. import conf

if TYPE_CHECKING:
    from ..session import Session

__all__ = ["Rounds", "recover", "tell_retention"]

logger = logging.getLogger(__name__)

BATCH = 1_000  # jobs in one statement
SWEEP_EVERY = 10.0  # seconds
ROTATE_AT_MOST = 60.0  # seconds

_BURY_SQL = "SELECT pgqueue_bury_v1(%s, %s::bigint[], %s::bigint[], %s, %s, %s, %s)"
_RECOVER_DEAD_SQL = "SELECT * FROM pgqueue_recover_dead_v1(%s, %s, %s, %s, %s)"


class Rounds:
    """When this supervisor does which round next; with jitter, so that many of them spread out."""

    def __init__(self) -> None:
        self._next_recovery = 0.0
        self._next_sweep = 0.0
        self._next_rotation = 0.0

    def run(self, session: Session, now: float) -> None:
        """Do what is due."""
        settings = conf.current()
        if now >= self._next_recovery:
            pause = settings.heartbeat * random.uniform(0.8, 1.2)
            self._next_recovery = now + (0.1 if recover_dead(session) >= BATCH else pause)
        if now >= self._next_sweep:
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
    (before,) = session.run(
        ("SELECT * FROM pgqueue_retain_v1(%s, %s)", (settings.retention, settings.failed_retention))
    )
    for retention, failed_retention in before:
        logger.warning(
            "retention changed from %s to %s, of failed jobs from %s to %s",
            retention, settings.retention, failed_retention, settings.failed_retention,
        )  # fmt: skip


def recover_dead(session: Session) -> int:
    """Give back jobs of workers that are dead, whoever supervised them; returns how many."""
    settings = conf.current()
    parameters = (settings.heartbeat, settings.lease, settings.crash_limit, BATCH, settings.keep_errors)
    (((dead, jobs),),) = session.run((_RECOVER_DEAD_SQL, parameters))
    if dead:
        logger.warning("%d workers are dead; %d of their jobs go back to their queues", dead, jobs)
    return int(jobs)


def recover(
    session: Session, worker: int, begun: list[int] | None, to_blame: list[int] | None, reason: str
) -> int | None:
    """Give back the jobs of a worker whose process has ended, and strike it off.

    ``begun``: the jobs that it had begun, None if nobody knows. ``to_blame``: those of them that count a
    crash, None for all. Returns how many jobs went back, None if there are more: try again soon.
    """
    settings = conf.current()
    parameters = (worker, begun, to_blame, reason, settings.crash_limit, BATCH, settings.keep_errors)
    (((jobs,),),) = session.run((_BURY_SQL, parameters))
    return None if jobs is None else int(jobs)


def recover_strays(session: Session) -> int:
    """Give back jobs of workers that nobody knows any more; returns how many."""
    settings = conf.current()
    parameters = (settings.crash_limit, BATCH, settings.keep_errors)
    (((jobs,),),) = session.run(("SELECT pgqueue_recover_strays_v1(%s, %s, %s)", parameters))
    if jobs:
        logger.warning("%d jobs of workers that are not on the list go back to their queues", jobs)
    return int(jobs)


def sweep(session: Session) -> int:
    """Empty the kept leaf of what is old enough, and the statistics likewise; returns how many jobs."""
    (((swept,),),) = session.run(("SELECT pgqueue_sweep_v1(%s)", (BATCH,)))
    longest = max(conf.current().retention, conf.current().failed_retention)
    session.run(("DELETE FROM pgqueue_stat WHERE minute < clock_timestamp() - %s", (longest,)))
    return int(swept)


def rotate(session: Session) -> bool:
    """Turn the ring of history if it is time; whether something was done, so that there may be more to do."""
    ((answer,),) = session.run(("SELECT pgqueue_rotate_v1()", None))
    did: str = answer[0]
    if did.startswith(("emptied", "moved", "restarted")):
        logger.info("history: %s", did)
        return True
    return False
