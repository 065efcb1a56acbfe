"""Maintenance: short rounds that any supervisor may do at any time, so that no leader is needed.

Each round is one database function. It locks the row of its duty (``pgqueue_duty``) or skips locked rows,
so two supervisors can run it at the same time without conflicts or double work.
"""

from __future__ import annotations

import json
import random
from datetime import timedelta

from .. import conf
from ..formatting import counted, get_logger
from ..monitoring.queues import FOREIGN_LOCKS_SQL, Holder
from ..postgres import sql_of
from ..postgres.session import Session
from ..schedules.fire import Firing
from .recovery import BATCH, recover_dead, requeued_strays

logger = get_logger(__name__)

SWEEP_EVERY = 10.0  # seconds
NETS_EVERY = 10.0  # seconds
NETS_SOON = 0.5  # seconds, if there is more to do
AGAIN = 10.0  # seconds until a round that failed is done again
REPAIR_EVERY = 1.0  # seconds, while jobs wait in lines
ROTATE_AT_MOST = 60.0  # seconds
#: How long runs are kept, in addition to the last one of each schedule. A schedule never fires a run that
#: is not later than its last one. The runs are the second line, if a user changes that row.
RUNS_KEPT = timedelta(days=8)
#: How long the relay knows what it has received. No attempt of a hand-over goes on for so long.
RECEIVED_KEPT = timedelta(days=7)
#: How many groups of failures are kept, the ones that were seen last.
MOST_GROUPS = 1_000
_NEVER = float("inf")
_told_holders: set[tuple[int, str]] = set()
_said: set[str] = set()
"""The problems of payload tables, and the models with strays, that were logged. They come back with each
round."""
_STRAYS = (
    "rows of %s have no job and never had one, because they were written without triggers, as some restores "
    "do. They stay: insert them again as new rows if they are to run, or delete them. Their ids are in the "
    "table pgqueue_stray"
)
PAGE = 1_000  # batches, jobs that wait, or limit keys, in one round
IN_USE_SQL = sql_of(__file__, "in_use")
_SWEEP_SQL = sql_of(__file__, "sweep")
_FREE_SQL = sql_of(__file__, "free")


class Rounds:
    """When this supervisor does each round next. Jitter spreads out the rounds of many supervisors."""

    def __init__(self) -> None:
        self.schedules = Firing()
        self._next = {
            self._recover: 0.0, self._sweep: 0.0, self._rotate: 0.0, self._spread_nets: 0.0,
            self._repair_wait_queues: _NEVER,
        }  # fmt: skip
        # What the last round has reached: a batch, a job that waits, a limit key.
        self._batch, self._child, self._limit_key = 0, 0, ""

    @property
    def next_round(self) -> float:
        """When ``run`` must be called next."""
        return min(self.schedules.next_round, *self._next.values())

    def recover_at(self, when: float) -> None:
        """Do a round of recovery then: the heartbeat has found a worker that may be dead by that time."""
        self._next[self._recover] = min(self._next[self._recover], when)

    def run(self, session: Session, now: float) -> None:
        """Do the rounds that are due. Each returns the seconds until the next one."""
        self.schedules.run(session, now)
        for round_ in self._next:
            if now >= self._next[round_]:
                self._next[round_] = now + AGAIN  # one that fails does not hold up the others
                self._next[round_] = now + round_(session)

    def _recover(self, session: Session) -> float:
        return 0.1 if recover_dead(session) >= BATCH else _NEVER

    def _sweep(self, session: Session) -> float:
        session.refresh_plans(idle=True)
        found = -1
        with session.aside("what a sweep sums up and deletes"):
            found = sweep(session)
        if found < 0:  # jobs depend on a part of it
            settings = conf.current()
            parameters = {
                "crash_limit": settings.crash_limit, "batch": BATCH, "keep_errors": settings.keep_errors,
            }  # fmt: skip
            strays, notable, unpaused = session.row(_FREE_SQL, parameters)
            found = max(int(unpaused), requeued_strays(int(strays), notable))
        return 0.1 if found >= BATCH else SWEEP_EVERY * _jitter()

    def _rotate(self, session: Session) -> float:
        tell_foreign_locks(session)
        with session.aside("the rotation of history"):
            did: str = session.value("SELECT _pgqueue_rotate()")
            if did.startswith(("emptied", "moved", "restarted")):
                logger.info("history: %s", did)
                return 1.0  # there may be more to do
        return min(ROTATE_AT_MOST, max(1.0, conf.current().retention.total_seconds() / 60)) * _jitter()

    # Nets under composition. The functions that end jobs settle what waits for them. Some of it they leave to
    # these rounds: children after the first 1,000 of a parent, and what another session had locked for too
    # long (``_pgqueue_settle``).

    def _spread_nets(self, session: Session) -> float:
        batches, children, wait_queues = session.row(IN_USE_SQL)
        # Each is a transaction of its own: locks of one must not be held while the next one waits.
        has_more = [batches and self._end_batches(session), children and self._settle_edges(session)]
        if wait_queues and self._next[self._repair_wait_queues] == _NEVER:
            self._next[self._repair_wait_queues] = 0.0
        return (NETS_SOON if any(has_more) else NETS_EVERY) * _jitter()

    def _end_batches(self, session: Session) -> bool:
        """End batches, and delete old ones. Return whether there may be more."""
        query = "SELECT reached, ended FROM _pgqueue_repair_batches(%s, %s)"
        reached, ended = session.row(query, (self._batch, PAGE))
        swept: int = session.value("SELECT _pgqueue_sweep_batches(%s)", (PAGE,))
        if ended:
            logger.info("ended %s that no worker would have ended", counted(ended, "batch", "batches"))
        self._batch = reached or 0
        return reached is not None or swept >= PAGE

    def _settle_edges(self, session: Session) -> bool:
        """Let jobs run, or cancel them. Return whether there may be more."""
        query = "SELECT reached, settled FROM _pgqueue_repair_edges(%s, %s)"
        reached, settled = session.row(query, (self._child, PAGE))
        self._child = reached or 0
        return reached is not None or settled > 0

    def _repair_wait_queues(self, session: Session) -> float:
        """Release the wait queues of limit keys that have room, but whose first job is blocked."""
        query = "SELECT lines, reached, released FROM _pgqueue_repair_lines(%s, %s)"
        wait_queues, reached, released = session.row(query, (self._limit_key, PAGE))
        if released:
            logger.warning("released %s that no worker would have released", counted(released, "job"))
        self._limit_key = reached or ""
        return REPAIR_EVERY * _jitter() if wait_queues else _NEVER


def _jitter() -> float:
    return random.uniform(0.8, 1.2)


def tell_retention(session: Session) -> None:
    """Write RETENTION, FAILED_RETENTION and MAX_JSON_BYTES to where the functions read them."""
    settings = conf.current()
    kept = settings.retention, settings.failed_retention
    before = session.rows("SELECT * FROM _pgqueue_retain(%s, %s, %s)", (*kept, settings.max_json_bytes))
    for retention, failed_retention in before:
        if (retention, failed_retention) != kept:
            logger.warning(
                "retention changed from %s to %s, retention of failed jobs from %s to %s",
                retention, settings.retention, failed_retention, settings.failed_retention,
            )  # fmt: skip


def tell_foreign_locks(session: Session) -> None:
    """Log each session that holds a lock of the queue without any right to it, once."""
    holders = map(Holder._make, session.rows(FOREIGN_LOCKS_SQL))
    found = {(holder.pid, holder.role): holder for holder in holders}
    _told_holders.intersection_update(found)
    for key, holder in found.items():
        if key not in _told_holders:
            _told_holders.add(key)
            logger.warning("%s. End it with pg_terminate_backend(%d).", holder, holder.pid)


def sweep(session: Session) -> int:
    """Sum up and delete what is old, requeue jobs of workers that are no longer registered, and let jobs
    continue whose pause has ended (``sweep.sql``). Return the largest of these numbers.
    """
    settings = conf.current()
    parameters = {
        "statistics": settings.statistics_retention, "runs": RUNS_KEPT, "received": RECEIVED_KEPT,
        "batch": BATCH, "groups": MOST_GROUPS, "crash_limit": settings.crash_limit,
        "keep_errors": settings.keep_errors,
    }  # fmt: skip
    swept, strays, notable, problems, jobless = session.row(_SWEEP_SQL, parameters)
    for text, names in (
        ("rows whose jobs are no longer kept cannot be deleted: %s", problems), (_STRAYS, jobless),
    ):  # fmt: skip
        for name in set(json.loads(names or "[]")) - _said:
            _said.add(name)
            logger.warning(text, name)
    return max(int(swept), requeued_strays(int(strays), notable))
