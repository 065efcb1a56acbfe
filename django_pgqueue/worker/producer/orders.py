"""What people ask of a worker: what is paused, whether it should end, the limits and the backoffs of queues.

All of it is one statement. It is sent

    at once after a notification, and with each registration
    before a claim, if the last answer is a second old: a notification may have been lost
    every second behind a transaction pooler, where there are no notifications

So no worker starts a job by an answer that is older than a second. A worker that sleeps searches for jobs,
and sends nothing for this until there are some.

When the pause of a task ends, its jobs continue in batches (``unpause_v1.sql``). Each worker takes part, and
starts with it whenever it connects: it may have missed the end.
"""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple

from ... import conf
from ...formatting import get_logger
from .pauses import LIMITS_SQL, PauseRow

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ...postgres.session import Session
    from ..executor.outcomes import Backoffs
    from ..executor.runner import Runner
    from ..options import WorkerOptions
    from .idle import Idle
    from .in_flight import Returns
    from .leases import Leases
    from .lifetime import Lifetime
    from .pauses import Pauses, QueueLimits

logger = get_logger(__name__)

READ_EVERY = 1.0  # seconds, while it claims
UNPAUSE_BATCH = 1_000  # jobs
UNPAUSE_EVERY = 0.1  # seconds between two batches

# The other processes of a supervisor that is asked to stop read this in the row of one of them.
_READ_SQL = f"""
    SELECT 'backoff', name, '', '', backoff_base, backoff_ceiling FROM pgqueue_queue
    WHERE coalesce(backoff_base, backoff_ceiling) IS NOT NULL
    UNION ALL
    SELECT kind, name, author, reason, date_part('epoch', until - clock_timestamp()), NULL FROM pgqueue_pause
    UNION ALL
    SELECT 'drain', drain, '', '', NULL, NULL FROM pgqueue_worker
    WHERE drain <> '' AND (id = {{worker}} OR supervisor = {{supervisor}} AND drain = 'stop')
    UNION ALL
    {LIMITS_SQL}
"""  # noqa: S608 - consists of constants
UNPAUSE_SQL = "SELECT pgqueue_unpause_v1(%s)"


class Told(NamedTuple):
    """The answer to the statement."""

    backoffs: Backoffs
    limits: list[tuple[str, float | None]]
    pauses: list[PauseRow]
    drains: list[str]


def orders_sql(worker: int, supervisor: int) -> str:
    """Return the statement that reads the orders of a worker process."""
    return _READ_SQL.format(worker=int(worker), supervisor=int(supervisor))


def read_orders(rows: Iterable[Any]) -> Told:
    """Sort out the rows of the statement."""
    found: dict[str, list[Any]] = {"backoff": [], "drain": [], "limit": [], "pause": []}
    for kind, *rest in rows:
        found.get(kind, found["pause"]).append((kind, *rest))
    return Told(
        {name: (base, ceiling) for _, name, _, _, base, ceiling in found["backoff"]},
        [(name, most) for _, name, _, _, most, _ in found["limit"]],
        [PauseRow(*row[:5]) for row in found["pause"]],
        [how for _, how, *_ in found["drain"]],
    )


class Orders:
    """Reads the orders of one worker process and follows them."""

    def __init__(
        self,
        options: WorkerOptions,
        worker: int,
        supervisor: int,
        *,
        pauses: Pauses,
        queue_limits: QueueLimits,
        runner: Runner,
        returns: Returns,
        idle: Idle,
        lifetime: Lifetime,
    ) -> None:
        self.statement = orders_sql(worker, supervisor)
        self._options = options
        self._pauses = pauses
        self._queue_limits = queue_limits
        self._runner = runner
        self._returns = returns
        self._idle = idle
        self._lifetime = lifetime
        self._next_read = 0.0
        self._outdated_at = 0.0
        """When the last answer is too old to claim by it."""
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
            self._read(session, now)
            self._next_read = now + conf.current().shortest_poll if session.pooled else float("inf")
        if now >= self._pauses.next_end:
            self._ended(self._pauses.expire(now))
        if now >= self._next_unpause:
            freed: int | None = session.value(UNPAUSE_SQL, (UNPAUSE_BATCH,))
            is_last = freed is not None and freed < UNPAUSE_BATCH
            self._next_unpause = float("inf") if is_last else now + UNPAUSE_EVERY

    def look_before_claim(self, session: Session, now: float) -> bool:
        """Read again if the last answer is too old. Return whether it was."""
        is_outdated = now >= self._outdated_at
        if is_outdated:
            self._read(session, now)
        return is_outdated

    def follow(self, rows: Iterable[Any], now: float) -> None:
        """Follow the rows of ``statement``, which was sent at the time ``now``."""
        self._outdated_at = now + READ_EVERY
        told = read_orders(rows)
        self._runner.outcomes.backoffs = told.backoffs
        self._queue_limits.learn(told.limits)
        # Counted from the answer on, a pause never ends too early here. Otherwise the server might find it
        # still in force, put nothing back, and be asked no more.
        began, ended = self._pauses.learn(told.pauses, monotonic())
        if began:
            self._returns.put_unstarted_aside()
        self._ended(ended)
        for how in told.drains:
            self._drain(how)

    def _read(self, session: Session, now: float) -> None:
        self.follow(session.rows(self.statement), now)

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


# ----------------------------------------------------------------------------
# Read from their rows which running jobs are asked to stop, and which are not this worker's any more.
#
# A notification names a job, and its row is read at once. It may have been lost, and behind a transaction
# pooler there are none, so the rows of jobs that run longer are read now and then.

_RUNNING_SQL = """
    SELECT id, lease, cancel_requested_at IS NOT NULL FROM pgqueue_job_live
    WHERE id = ANY (%s::bigint[]) AND status = 'running'
"""


class CancelRequests:
    """Reads the rows of jobs that a notification has named, and once in each poll interval those of jobs that
    have run longer than that. Those without a row go to ``leases``.
    """

    def __init__(self, runner: Runner, leases: Leases) -> None:
        self._runner = runner
        self._leases = leases
        self._named: set[int] = set()
        self._next_look = 0.0

    def name(self, job_id: int) -> None:
        """Read the row of this job soon, if it runs here."""
        if self._runner.running_one(job_id) is not None:
            self._named.add(job_id)

    def seconds_left(self) -> float:
        """Return 0 if a job was named. Jobs that run longer need no haste."""
        return 0.0 if self._named else float("inf")

    def look(self, session: Session, now: float) -> None:
        """If it is time, look for requests and pass them on."""
        is_due, longest = now >= self._next_look, float("inf")
        if not is_due and not self._named:
            return
        if is_due:
            longest = conf.current().shortest_poll
            self._next_look = now + longest
        jobs = [
            job for job in self._runner.running() if job.row.id in self._named or now - job.started > longest
        ]
        found = session.rows(_RUNNING_SQL, ([job.row.id for job in jobs],)) if jobs else []
        for job_id in (job_id for job_id, _, is_asked in found if is_asked):
            self._runner.cancel(job_id)
        self._named.clear()
        if is_due:
            held = {(job_id, lease) for job_id, lease, _ in found}
            self._leases.look(session, [job for job in jobs if (job.row.id, job.row.lease) not in held])
