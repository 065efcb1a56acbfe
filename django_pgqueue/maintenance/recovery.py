"""Recovery: requeue the jobs of dead workers.

A supervisor knows at once that one of its processes has ended, and which jobs had started in it
(``EndedProcesses``). The database finds all other dead workers by their heartbeats (``recover_dead``). Strays
are jobs that neither of them finds, because their worker is no longer registered.

A job counts a crash if its process ended alone. If the supervisor or another of its processes ended as well,
the job counts a crash only if its previous run was lost in the same way (``_pgqueue_recover``).
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from types import SimpleNamespace

from .. import conf
from ..formatting import counted, get_logger
from ..postgres.session import Session
from ..telemetry.log import is_logged, log_ending

logger = get_logger(__name__)
BATCH = 1_000  # jobs in one statement
TOGETHER = 1.0  # seconds; processes that end by themselves within this time have not ended alone
_RECOVER_WORKER_SQL = (
    "SELECT * FROM _pgqueue_recover_worker(%s, %s::bigint[], %s::bigint[], %s, %s, %s, %s, %s)"
)
KEEP_STACKS_SQL = "SELECT _pgqueue_keep_stacks(%s, %s::bigint[], %s::text[])"
_RECOVER_DEAD_SQL = "SELECT * FROM _pgqueue_recover_dead(%s, %s, %s, %s, %s)"


@dataclass(slots=True)
class EndedProcess:
    """A worker whose process has ended without signing off."""

    worker: int
    begun: list[int] | None  # the jobs that had started in it; None if that is not known
    to_blame: list[int] | None
    """The jobs for which its supervisor ended it, possibly none; None if it ended by itself."""
    reason: str
    started_at: float
    ended_at: float  # like ``started_at``, by the monotonic clock
    alone: bool = True  # false if another process of its supervisor ended by itself at about the same time
    stacks: dict[int, str] = field(default_factory=dict)  # what its jobs did then, by id, if that is known


class EndedProcesses:
    """The processes of one supervisor that have ended, until their jobs are requeued."""

    def __init__(self) -> None:
        self._ended: list[EndedProcess] = []
        self._last_end = float("-inf")  # of a process that has ended by itself

    def __len__(self) -> int:
        return len(self._ended)

    def add(self, ended: EndedProcess) -> None:
        """Add a process. The next ``give_back`` requeues its jobs.

        Race: several processes are killed, and the supervisor sees the first one end before the others. Its
        jobs do not wait until it is known whether others end. If they have been requeued by then, they count
        a crash, and the jobs of the others do not. If not, they count none either.
        """
        if ended.to_blame is None:
            # The process that this one replaced ended before it started, and does not count.
            since = max(ended.started_at, ended.ended_at - TOGETHER)
            ended.alone = self._last_end < since
            for other in self._ended:
                if other.to_blame is None and other.ended_at >= since:
                    other.alone = False
            self._last_end = ended.ended_at
        self._ended.append(ended)

    def give_back(self, session: Session) -> None:
        """Requeue a batch of the jobs of each process."""
        for ended in self._ended.copy():
            jobs = recover(session, ended)
            if jobs is not None:
                self._ended.remove(ended)
            if jobs:
                logger.warning("requeued %s of the process that ended", counted(jobs, "job"))


def recover(session: Session, ended: EndedProcess) -> int | None:
    """Requeue the jobs of an ended worker; delete its row. Return how many run again; None: more are left."""
    settings = conf.current()
    reason = ended.reason if ended.alone else f"{ended.reason}, and other processes ended at the same time"
    parameters = (
        ended.worker, ended.begun, ended.to_blame, ended.alone, reason,
        settings.crash_limit, BATCH, settings.keep_errors,
    )  # fmt: skip
    if ended.stacks:  # before, because the job is requeued without its lease
        with session.aside("the stacks of lost jobs"):
            session.rows(KEEP_STACKS_SQL, (ended.worker, [*ended.stacks], [*ended.stacks.values()]))
        ended.stacks = {}
    jobs, notable = session.row(_RECOVER_WORKER_SQL, parameters)
    over = log_lost_jobs(notable)
    return None if jobs is None else int(jobs) - over


def recover_dead(session: Session) -> int:
    """Requeue jobs of dead workers of any supervisor, and return the number of jobs."""
    settings = conf.current()
    parameters = (settings.heartbeat, settings.lease, settings.crash_limit, BATCH, settings.keep_errors)
    dead, jobs, notable = session.row(_RECOVER_DEAD_SQL, parameters)
    requeued = int(jobs) - log_lost_jobs(notable)
    if dead:
        logger.warning("found %s, requeued %s", counted(dead, "dead worker"), counted(requeued, "job"))
    return int(jobs)


def requeued_strays(jobs: int, notable: str) -> int:
    """Log the jobs whose worker is not registered (``_pgqueue_recover``), and return their number."""
    if requeued := jobs - log_lost_jobs(notable):
        logger.warning("requeued %s of workers that no longer exist", counted(requeued, "job"))
    return jobs


def log_lost_jobs(notable: str) -> int:
    """Log the jobs of workers that died and cannot log them themselves (a JSON list), and return how many of
    them do not run again. A job gets a line if it failed, was cancelled, or counts a crash.

    Race: two supervisors may recover the same workers. A job is in the answer to the one that moved it, so it
    gets one line. It gets none if that supervisor loses its connection before the answer arrives.
    """
    jobs = [SimpleNamespace(**job) for job in json.loads(notable)]  # columns of ``_pgqueue_give_back``
    for job in jobs:
        if is_logged(job.outcome):
            # Other jobs may have run in the same process, so it is not known which of them took it down.
            words = "lost its process" if job.outcome == "crash" else job.outcome
            log_ending(job, job.outcome, words, why=job.reason, error_class=job.error_class)
    return sum(job.outcome != "crash" for job in jobs)
