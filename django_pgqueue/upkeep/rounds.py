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
    from ..worker.connection import Session

__all__ = ["Rounds", "recover", "tell_retention"]

logger = logging.getLogger(__name__)

BATCH = 1_000  # jobs in one statement
SWEEP_EVERY = 10.0  # seconds
ROTATE_AT_MOST = 60.0  # seconds


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
            self._next_recovery = now + settings.heartbeat * random.uniform(0.8, 1.2)
            recover_dead(session)
        if now >= self._next_sweep:
            pause = 0.1 if sweep(session) >= BATCH else SWEEP_EVERY * random.uniform(0.8, 1.2)
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
    """Give back the jobs of workers that are dead, whoever supervised them; returns how many."""
    settings = conf.current()
    (rows,) = session.run(("SELECT pgqueue_dead_workers_v1(%s, %s)", (settings.heartbeat, settings.lease)))
    dead = [worker for (worker,) in rows]
    if not dead:
        return 0
    jobs = recover(session, dead)
    logger.warning("%d workers are dead; %d of their jobs go back to their queues", len(dead), jobs)
    return jobs


def recover(session: Session, workers: list[int]) -> int:
    """Give back all jobs of these workers, and strike them off the table; returns how many jobs."""
    total: int = 0
    while True:
        ((answer,),) = session.run(
            ("SELECT pgqueue_recover_v1(%s::bigint[], %s, %s)", (workers, BATCH, conf.current().keep_errors))
        )
        total += answer[0]
        if answer[0] < BATCH:
            break
    session.run(
        (
            """
            DELETE FROM pgqueue_worker AS worker WHERE worker.id = ANY (%s::bigint[]) AND NOT EXISTS (
                SELECT FROM pgqueue_job_live AS job WHERE job.status = 'running' AND job.worker = worker.id
            )
            """,
            (workers,),
        )
    )
    return total


def sweep(session: Session) -> int:
    """Empty the kept leaf of what is old enough, and the statistics likewise; returns how many jobs."""
    ((swept,), _) = session.run(
        ("SELECT pgqueue_sweep_v1(%s)", (BATCH,)),
        (
            "DELETE FROM pgqueue_stat WHERE minute < clock_timestamp() - %s",
            (max(conf.current().retention, conf.current().failed_retention),),
        ),
    )
    return int(swept[0])


def rotate(session: Session) -> bool:
    """Turn the ring of history if it is time; whether something was done, so that there may be more to do."""
    ((answer,),) = session.run(("SELECT pgqueue_rotate_v1()", None))
    did: str = answer[0]
    if did.startswith(("emptied", "moved", "restarted")):
        logger.info("history: %s", did)
        return True
    return False
