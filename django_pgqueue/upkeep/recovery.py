"""Recovery: what a worker that is dead has left behind goes back to its queues.

A supervisor knows at once that one of its processes has ended, and which jobs that had begun
(``EndedProcesses``). Of all other workers the database decides by their heartbeats which are dead
(``recover_dead``). Strays are jobs that neither finds, because their worker is on no list any more.

A job counts a crash if its process ended alone. If its supervisor or another process of it ended, too, it
counts one only if its last run was lost like this as well (``sql/recover_v1.sql``).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .. import conf
from ..wording import counted
from .lost_jobs import log_lost_jobs

if TYPE_CHECKING:
    from ..session import Session

__all__ = ["BATCH", "EndedProcess", "EndedProcesses", "recover", "recover_dead", "recover_strays"]

logger = logging.getLogger(__name__)

BATCH = 1_000  # jobs in one statement
TOGETHER = 1.0  # seconds; processes that end by themselves so close to each other have not ended alone

_RECOVER_WORKER_SQL = (
    "SELECT * FROM pgqueue_recover_worker_v1(%s, %s::bigint[], %s::bigint[], %s, %s, %s, %s, %s)"
)
_RECOVER_DEAD_SQL = "SELECT * FROM pgqueue_recover_dead_v1(%s, %s, %s, %s, %s)"
_RECOVER_STRAYS_SQL = "SELECT * FROM pgqueue_recover_strays_v1(%s, %s, %s)"


@dataclass(slots=True)
class EndedProcess:
    """A worker whose process has ended without signing off."""

    worker: int
    begun: list[int] | None
    """The jobs that it had begun; None if nobody knows."""
    to_blame: list[int] | None
    """The jobs for which its supervisor has ended it, possibly none; None if it has ended by itself."""
    reason: str
    started_at: float
    ended_at: float
    """Both by the monotonic clock."""
    alone: bool = True
    """Whether no other process of its supervisor has ended by itself at about the same time."""


class EndedProcesses:
    """The processes that have ended under one supervisor, until their jobs have gone back."""

    def __init__(self) -> None:
        self._ended: list[EndedProcess] = []
        self._last_end = float("-inf")  # of a process that has ended by itself

    def __len__(self) -> int:
        return len(self._ended)

    def add(self, ended: EndedProcess) -> None:
        """Its jobs go back at the next ``give_back``.

        Race: several processes are killed, and the supervisor sees the first one end before the others have.
        The jobs of the first do not wait until it is known whether others end: then they count a crash, and
        those of the others do not. What has not gone back yet learns of the others.
        """
        if ended.to_blame is None:
            # The process that it has replaced, and that ended before it was there, is not another one.
            since = max(ended.started_at, ended.ended_at - TOGETHER)
            ended.alone = self._last_end < since
            for other in self._ended:
                if other.to_blame is None and other.ended_at >= since:
                    other.alone = False
            self._last_end = ended.ended_at
        self._ended.append(ended)

    def give_back(self, session: Session) -> None:
        """Give back a batch of the jobs of each."""
        for ended in self._ended.copy():
            jobs = recover(session, ended)
            if jobs is None:
                continue
            self._ended.remove(ended)
            if jobs:
                logger.warning("requeued %s of the process that ended", counted(jobs, "job"))


def recover(session: Session, ended: EndedProcess) -> int | None:
    """Give back the jobs of a worker whose process has ended, and remove it from the list.

    Returns how many jobs run again, None if there are more: try again soon.
    """
    settings = conf.current()
    reason = ended.reason if ended.alone else f"{ended.reason}, and other processes ended at the same time"
    parameters = (
        ended.worker, ended.begun, ended.to_blame, ended.alone, reason,
        settings.crash_limit, BATCH, settings.keep_errors,
    )  # fmt: skip
    jobs, notable = session.row(_RECOVER_WORKER_SQL, parameters)
    over = log_lost_jobs(notable)
    return None if jobs is None else int(jobs) - over


def recover_dead(session: Session) -> int:
    """Give back jobs of workers that are dead, whoever supervised them; returns how many."""
    settings = conf.current()
    parameters = (settings.heartbeat, settings.lease, settings.crash_limit, BATCH, settings.keep_errors)
    dead, jobs, notable = session.row(_RECOVER_DEAD_SQL, parameters)
    requeued = int(jobs) - log_lost_jobs(notable)
    if dead:
        logger.warning("found %s, requeued %s", counted(dead, "dead worker"), counted(requeued, "job"))
    return int(jobs)


def recover_strays(session: Session) -> int:
    """Give back jobs of workers that nobody knows any more; returns how many."""
    settings = conf.current()
    jobs, notable = session.row(_RECOVER_STRAYS_SQL, (settings.crash_limit, BATCH, settings.keep_errors))
    if requeued := int(jobs) - log_lost_jobs(notable):
        logger.warning("requeued %s of workers that no longer exist", counted(requeued, "job"))
    return int(jobs)
