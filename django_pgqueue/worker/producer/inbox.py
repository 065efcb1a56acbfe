"""What others send to a worker: notifications, orders, and requests to cancel jobs.

Every role that may connect can notify any channel, so a notification is only a reason to look at rows. The
worker checks now and then that they arrive, by notifying itself:

    silent --prove--> sent --heard--> silent
    sent --prove, and still not heard--> deaf: the connection is replaced

A session can run statements and still be deaf: a pooler or proxy may have given it another process of the
server, or a user may have run DISCARD ALL in it. NOTIFY takes a lock on the whole database until the end of
the commit, so a proof is rare, and is sent in a statement that is needed anyway. Behind a transaction pooler
no session listens.

Orders are what is paused, whether the worker should end, the limits and the backoffs of queues. One statement
reads them all: after a notification, with each registration, at the end of a pause, before a claim if the
last answer is a second old, and every second behind a transaction pooler, so no worker starts a job by an
answer that is older than a second, even if a notification was lost.

    pause of a queue, of everything   the claim leaves these ranges out, and so does the search: no row is
                                      touched
    pause of a task                   jobs that are claimed are put aside: blocked, without an attempt spent.
                                      At its end, they continue in batches (``_pgqueue_unpause``). Each worker
                                      takes part, and starts with it whenever it connects
    pause of a group, a limit key,    the same, but the server says which of the claimed jobs these are
    an argument                       (``_pgqueue_put_aside``)
    limit of a queue, of everything   while there are none, the claim is the plain one. With them, it asks
                                      for each limited queue how many jobs may start (``_pgqueue_room``),
                                      also by its rate; that is exact, whichever numbers other workers know
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from time import monotonic
from typing import Any

import psycopg

from ... import conf
from ...encoding import whole_number
from ...jobs.claim import BATCH, Claimed
from ...postgres import sql_of
from ...postgres.session import Session
from ..executor.outcomes import REASON_LIMIT, Backoffs
from ..executor.runner import Runner
from ..executor.running_job import RunningJob
from ..executor.stacks import write_stacks

READ_EVERY = 1.0  # seconds, while it claims
UNPAUSE_BATCH = 1_000  # jobs
UNPAUSE_EVERY = 0.1  # seconds between two batches
MOST_NAMES = 1_000  # queues that notifications name and that are searched one by one
PROOF = "proof"  # the first word of the payload: `proof <worker> <number>`
_ORDERS = ("pause", "drain")  # the payloads that are about every worker
_NEVER = float("inf")
_READ_SQL = sql_of(__file__, "orders")
_PUT_ASIDE_SQL = "SELECT id, reason FROM _pgqueue_put_aside(%s::bigint[])"
UNPAUSE_SQL = "SELECT _pgqueue_unpause(%s)"
_RUNNING_SQL = sql_of(__file__, "running")


class DeafSessionError(psycopg.OperationalError):
    """The session does not receive notifications and must be replaced."""


class Inbox:
    """The notifications and orders of one worker process. ``now`` is a monotonic clock in seconds."""

    def __init__(self, worker: int, supervisor: int, runner: Runner) -> None:
        self.orders_sql = orders_sql(worker, supervisor)
        self.orders = Orders()
        self._worker = worker
        self._runner = runner
        self._listens = False
        self._proofs = 0
        self._proof_sent_at: float | None = None
        self._is_proven = False  # in this session
        self._named_queues: set[str] = set()
        self._named_jobs: set[int] = set()
        self._next_read = 0.0
        self._outdated_at = 0.0  # when the last answer is too old to claim by it
        self._next_unpause = 0.0
        self._next_look = 0.0  # at the jobs that run longer

    def connected(self, session: Session) -> None:
        """Start to LISTEN in a new session. Read the orders again, since notifications may have been lost."""
        self._next_read = self._next_unpause = 0.0
        self._proof_sent_at = None
        self._is_proven = False
        self._listens = not session.pooled
        if self._listens:
            channel = session.value("SELECT _pgqueue_channel()")
            session.connection.execute(f'LISTEN "{channel}"')

    # -- notifications

    @property
    def hears(self) -> bool:
        """Whether the last proof has arrived."""
        return self._listens and self._is_proven and self._proof_sent_at is None

    def hear(self, session: Session) -> bool:
        """Read the notifications that have arrived. Return whether a queue may have jobs."""
        if session.pooled:
            return False
        is_called = False
        for notification in session.notifications():
            word, _, rest = notification.payload.partition(" ")
            if word in {"cancel", "stack"}:
                job_id = whole_number(rest)
                if job_id is not None and job_id in self._runner.running:
                    self._named_jobs.add(job_id)
            elif word in _ORDERS:
                self._next_read = 0.0
            elif word == PROOF:
                if notification.payload == f"{PROOF} {self._worker} {self._proofs}":  # not another worker's
                    self._proof_sent_at, self._is_proven = None, True
            else:
                is_called = True
                if rest and len(self._named_queues) < MOST_NAMES:
                    self._named_queues.add(rest)
        return is_called

    def named_queues(self) -> set[str]:
        """Return once the queues that notifications have named since the last search."""
        named, self._named_queues = self._named_queues, set()
        return named

    def prove(self, now: float) -> str | None:
        """Return the next proof, which the worker is to send to itself; None if it does not listen. Raise
        ``DeafSessionError`` if the last one is missing, though each turn first reads what has arrived.
        """
        if not self._listens:
            return None
        if self._proof_sent_at is not None:
            raise DeafSessionError(
                "the session does not receive notifications: the one that it sent to itself "
                f"{now - self._proof_sent_at:.0f} s ago has not arrived. The session is replaced; if this "
                "happens repeatedly, check whether there is a pooler or proxy in between"
            )
        self._proofs += 1
        self._proof_sent_at = now
        return f"{PROOF} {self._worker} {self._proofs}"

    # -- orders

    def seconds_left(self, now: float) -> float:
        """Return the seconds until something here is due. Jobs that run longer need no haste."""
        if self._named_jobs:
            return 0.0
        return max(0.0, min(self._next_read, self._next_unpause, self.orders.next_end) - now)

    def read_orders(self, session: Session, now: float, *, claims: bool) -> bool:
        """Do what is due. Return whether the orders were read. ``claims``: a claim is about to follow."""
        is_due = now >= min(self._next_read, self.orders.next_end, self._outdated_at if claims else _NEVER)
        if is_due:
            self.learn_orders(session.rows(self.orders_sql), now)
            self._next_read = now + conf.current().shortest_poll if session.pooled else _NEVER
        if now >= self._next_unpause:
            freed: int | None = session.value(UNPAUSE_SQL, (UNPAUSE_BATCH,))
            is_last = freed is not None and freed < UNPAUSE_BATCH
            self._next_unpause = _NEVER if is_last else now + UNPAUSE_EVERY
        return is_due

    def learn_orders(self, rows: Iterable[Any], now: float) -> None:
        """Learn the answer to ``orders_sql``, which was sent at the time ``now``."""
        self._outdated_at = now + READ_EVERY
        # Counted from the answer on, a pause never ends too early here, and is not asked for in vain.
        self.orders.learn(rows, monotonic())
        self._runner.outcomes.backoffs = self.orders.backoffs
        if self.orders.pauses_ended - {"all", "queue"}:
            self._next_unpause = 0.0

    # -- running jobs

    def look_at_running(self, session: Session, now: float) -> list[RunningJob] | None:
        """Ask the jobs to stop that are to be cancelled, and write the stacks for which someone has asked: of
        the jobs that a notification has named, and once in each poll interval of jobs that have run longer.

        Return the latter whose rows do not say that they run here; None if it is not time.
        """
        is_due, longest = now >= self._next_look, _NEVER
        if not is_due and not self._named_jobs:
            return None
        if is_due:
            longest = conf.current().shortest_poll
            self._next_look = now + longest
        jobs = [
            job
            for job in list(self._runner.running.values())
            if job.row.id in self._named_jobs or now - job.started > longest
        ]
        found = session.rows(_RUNNING_SQL, ([job.row.id for job in jobs],)) if jobs else []
        for job_id in (job_id for job_id, _, is_asked, _ in found if is_asked):
            self._runner.cancel(job_id)
        asked = {job_id for job_id, _, _, is_asked in found if is_asked}
        here = []
        for job in (job for job in jobs if job.row.id in asked):
            if job.send is not None:
                job.send("stack")  # its own process writes it
            else:
                here.append(job)
        if here:
            write_stacks(session, here)
        self._named_jobs.clear()
        if not is_due:
            return None
        held = {(job_id, lease) for job_id, lease, *_ in found}
        return [job for job in jobs if (job.row.id, job.row.lease) not in held]


def orders_sql(worker: int, supervisor: int) -> str:
    """Return the statement that reads the orders of a worker process. It has no parameters."""
    return _READ_SQL.format(worker=int(worker), supervisor=int(supervisor))


class Orders:
    """The answer to ``orders_sql``. The ends of pauses are read as seconds left: clocks need not agree."""

    def __init__(self) -> None:
        self.backoffs: Backoffs = {}
        self.drains: list[str] = []  # how the worker is asked to end
        self.limits: dict[str, int | None] = {}  # of queues; one that has only a rate has no number
        self.everything = False  # whether everything is paused
        self.queues: set[str] = set()  # the paused ones
        self.tasks: dict[str, str] = {}  # the paused ones, and the reasons for their jobs
        self.is_narrow = False  # whether a pause holds some jobs of a task only
        self.next_end = _NEVER  # of these pauses
        self.pause_began = False  # whether a pause has begun since the answer before
        self.pauses_ended: set[str] = set()  # the kinds of the pauses that have ended since then
        self._ends: dict[tuple[str, str], float] = {}
        self._put_aside = 0

    @property
    def has_pauses(self) -> bool:
        """Whether anything is paused."""
        return bool(self._ends)

    def stops(self, queue_name: str) -> bool:
        """Return whether no jobs of this queue are to be started."""
        return self.everything or queue_name in self.queues

    def learn(self, rows: Iterable[Any], now: float) -> None:
        """Replace what is known."""
        before, ended = set(self._ends), set[str]()
        self.backoffs, self.drains, self.limits, self.tasks, self._ends = {}, [], {}, {}, {}
        for kind, name, author, reason, number, ceiling in rows:
            if kind == "backoff":
                self.backoffs[name] = number, ceiling
            elif kind == "drain":
                self.drains.append(name)
            elif kind == "limit":
                self.limits[name] = None if number is None else int(number)
            elif number is not None and number <= 0:
                ended.add(kind)
            else:
                self._ends[kind, name] = _NEVER if number is None else now + number
                if kind == "task":
                    by, why = author and f" by {author}", reason and f": {reason}"
                    self.tasks[name] = f"paused{by}{why}"[:REASON_LIMIT]
        self.everything = ("all", "") in self._ends
        self.queues = {name for kind, name in self._ends if kind == "queue"}
        self.is_narrow = any(kind not in {"all", "queue", "task"} for kind, _ in self._ends)
        self.next_end = min(self._ends.values(), default=_NEVER)
        self.pause_began = bool(self._ends.keys() - before)
        self.pauses_ended = ended | {kind for kind, _ in before - self._ends.keys()}

    def reasons(self, rows: Sequence[Claimed]) -> dict[int, str]:
        """Return the reasons of the jobs whose task is paused."""
        return {row.id: self.tasks[row.task_path] for row in rows if row.task_path in self.tasks}

    def ask(self, session: Session, jobs: Sequence[int]) -> dict[int, str]:
        """Ask the server for the same, and for the jobs that a narrow pause holds, if there is one."""
        return dict(session.rows(_PUT_ASIDE_SQL, (jobs,))) if self.is_narrow else {}

    def limit(self, free: int) -> int:
        """Return how many jobs to claim with so much room: more after claims of only paused jobs. A million
        of these, which need no slot, must not hold up the jobs behind them.
        """
        return min(max(BATCH, free), free << min(self._put_aside, 9))

    def note(self, claimed: Sequence[Claimed], runs: Sequence[Claimed]) -> None:
        """Note how many of the ``claimed`` jobs are to run."""
        self._put_aside = self._put_aside + 1 if claimed and not runs else 0

    def limit_parameters(self) -> dict[str, list[Any]]:
        """Return the arrays for the claim; none without limits."""
        if not self.limits:
            return {}
        names = sorted(self.limits)
        return {"limited_queues": names, "limits": [self.limits[name] for name in names]}
