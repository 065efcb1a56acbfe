"""What people ask of a worker: what is paused, whether it should end, and the backoffs of queues.

All of it is one statement, which is sent with each registration, and at once after a notification. Behind a
transaction pooler there are no notifications, so it is sent every second. While nothing is paused and nobody
asks for anything, a worker with a direct connection sends nothing for this.

When the pause of a task ends, its jobs continue in batches (``unpause_v1.sql``). Each worker takes part, and
starts with it whenever it connects: it may have missed the end.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from ... import conf
from ..executor.backoffs import backoffs
from .pauses import PauseRow

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ...session import Session
    from ..executor.runner import Runner
    from ..options import WorkerOptions
    from .idle import Idle
    from .lifetime import Lifetime
    from .pauses import Pauses
    from .returns import Returns

__all__ = ["Orders"]

logger = logging.getLogger(__name__)

UNPAUSE_BATCH = 1_000  # jobs
UNPAUSE_EVERY = 0.1  # seconds between two batches

# The other processes of a supervisor that is asked to stop read this in the row of one of them.
_READ_SQL = """
    SELECT 'backoff', name, '', '', backoff_base, backoff_ceiling FROM pgqueue_queue
    WHERE coalesce(backoff_base, backoff_ceiling) IS NOT NULL
    UNION ALL
    SELECT kind, name, author, reason, date_part('epoch', until - clock_timestamp()), NULL FROM pgqueue_pause
    UNION ALL
    SELECT 'drain', drain, '', '', NULL, NULL FROM pgqueue_worker
    WHERE drain <> '' AND (id = {worker} OR supervisor = {supervisor} AND drain = 'stop')
"""
_UNPAUSE_SQL = "SELECT pgqueue_unpause_v1(%s)"


class Orders:
    """Reads the orders of one worker process and follows them."""

    def __init__(
        self,
        options: WorkerOptions,
        worker: int,
        supervisor: int,
        *,
        pauses: Pauses,
        runner: Runner,
        returns: Returns,
        idle: Idle,
        lifetime: Lifetime,
    ) -> None:
        self.statement = _READ_SQL.format(worker=int(worker), supervisor=int(supervisor))
        self._options = options
        self._pauses = pauses
        self._runner = runner
        self._returns = returns
        self._idle = idle
        self._lifetime = lifetime
        self._next_read = 0.0
        self._next_unpause = 0.0

    def connected(self, session: Session) -> None:
        """Read again in a new session, because notifications may have been lost."""
        self._next_read = self._next_unpause = 0.0

    def changed(self) -> None:
        """Read again at once, because a notification has arrived."""
        self._next_read = 0.0

    def seconds_left(self, now: float) -> float:
        """Return the seconds until ``look`` has something to do."""
        return max(0.0, min(self._next_read, self._next_unpause, self._pauses.next_end) - now)

    def look(self, session: Session, now: float) -> None:
        """Do what is due."""
        if now >= self._next_read:
            self.follow(session.rows(self.statement), now)
            self._next_read = now + conf.current().shortest_poll if session.pooled else float("inf")
        if now >= self._pauses.next_end:
            self._ended(self._pauses.expire(now))
        if now >= self._next_unpause:
            freed: int | None = session.value(_UNPAUSE_SQL, (UNPAUSE_BATCH,))
            is_last = freed is not None and freed < UNPAUSE_BATCH
            self._next_unpause = float("inf") if is_last else now + UNPAUSE_EVERY

    def follow(self, rows: Iterable[Any], now: float) -> None:
        """Follow the rows of ``statement``."""
        found: dict[str, list[Any]] = {"backoff": [], "drain": [], "pause": []}
        for kind, *rest in rows:
            found.get(kind, found["pause"]).append((kind, *rest))
        self._runner.backoffs = backoffs(
            (name, base, ceiling) for _, name, _, _, base, ceiling in found["backoff"]
        )
        began, ended = self._pauses.learn([PauseRow(*row[:5]) for row in found["pause"]], now)
        if began:
            self._returns.put_unstarted_aside()
        self._ended(ended)
        for _, how, *_ in found["drain"]:
            self._drain(how)

    def _ended(self, kinds: set[str]) -> None:
        if kinds:
            self._idle.look_now()
        if "task" in kinds:
            self._next_unpause = 0.0

    def _drain(self, how: str) -> None:
        lifetime = self._lifetime
        if how == "stop" and not lifetime.retired:
            logger.info("asked to stop this worker with all its processes")
            lifetime.retire(self._options.grace)
        elif how == "replace" and not lifetime.stopping:
            logger.info("asked to let another process replace this one")
            lifetime.replace(self._options.grace)
