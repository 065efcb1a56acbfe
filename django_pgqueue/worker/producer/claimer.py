"""Find and claim jobs: which ranges to read, and the claim itself."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from time import monotonic
from typing import Any

from ...exceptions import UnknownTask
from ...formatting import counted, get_logger
from ...jobs.claim import Claimed, Refusals, claim_sql, split_answer
from ...postgres import sql_of
from ...postgres.clock import heard
from ...postgres.session import Session
from ...tasks.task import find_task
from ..options import WorkerOptions, new_id
from .inbox import Orders
from .ranges import ARRIVALS, SLICE, FirstDue, Places, in_turn

logger = get_logger(__name__)

FIRST_DUE_SQL = sql_of(__file__, "first_due")
MOST_RANGES = 1_000  # due ones that a search returns
MOST_COMING = 50  # of the others
GROUPS_SQL = sql_of(__file__, "groups")
# The status is a calculation for the reason that jobs/claim.sql names.
_FREE_SQL = sql_of(__file__, "free")
KEYS = 256  # The gate decides about so many at a time. While it leaves jobs behind, a claim picks no more.
MANY_RANGES = 200  # If a search through all queues finds more, the next one is rationed.
RESCAN_SOONEST = 0.05  # seconds
# The pause after something, as a multiple of its duration:
STEP_RATION = 4.0  # after a step of a pass through the groups, while jobs are due
RESCAN_RATION = 50.0
SEARCH_RATION = 20.0  # after a search that found many ranges
SLEEP_RATION = 300.0  # the same while the worker sleeps, and notifications name the queues that have jobs


class Claimer:
    """One worker's view of the queues."""

    def __init__(self, options: WorkerOptions, worker: int, orders: Orders | None = None) -> None:
        self._alias = options.alias
        self._queues = list(options.queues) or None
        self._except = list(options.exclude_queues)
        self._worker = worker
        self._lease = new_id()
        self._orders = Orders() if orders is None else orders
        self._places = Places(self._orders, options.weights)
        self._searched = 0.0
        self._search_seconds = 0.0  # that the last search through all queues took, if it found many ranges
        self._next_full_search = self._next_rescan = 0.0
        self._owes_full_search = False  # since it was awake: what was enqueued then was not announced
        self._coming: dict[str, float] = {}  # when the next job of a queue comes due that has none before
        self._coming_until: float | None = None  # what comes due later is not among them
        self._next_step = 0.0
        self._keyed_until = 0.0
        self._refusals = Refusals()
        self._following: list[int] = []  # what the next claim takes first
        self.only_refused = False  # the last claim gave no jobs, but the gate has refused some

    @property
    def knows_ranges(self) -> bool:
        """Whether a claim could find any job."""
        return bool(self._places.keys())

    def statement(self, limit: int) -> tuple[str, dict[str, Any]]:
        """Return the next claim, with a new lease."""
        self._lease += 1
        if monotonic() < self._keyed_until:
            limit = min(limit, KEYS)
        places = self._places.claim_parameters(limit, monotonic())
        first, self._following = self._following, []
        return claim_sql(limited=bool(self._orders.limits), grouped="groups" in places), {
            **places, **self._orders.limit_parameters(),
            "first": first, "limit": limit, "worker": self._worker, "lease": self._lease,
        }  # fmt: skip

    def claim(self, session: Session, limit: int) -> list[Claimed]:
        """Claim up to ``limit`` jobs in a round trip that does nothing else."""
        began = monotonic()
        statement, asked = self.statement(limit)
        return self.claimed(session.rows(statement, asked), asked, monotonic() - began)

    def claimed(self, answer: Iterable[Any], asked: Mapping[str, Any], seconds: float) -> list[Claimed]:
        """Return the claimed rows, which UPDATE returns in any order, as they start: by priority, run_after
        and id, the groups of a range in turn. ``asked``: the parameters of the claim.
        """
        rows, self._refusals, early, is_full = split_answer(answer)
        if rows:
            heard(self._alias, rows[0].last_attempted_at)
        self._following += self._refusals.following
        if ended := self._refusals.ended:
            logger.info("cancelled %s that found no room, as the limit says", counted(ended, "job"))
        self.only_refused = not rows and any(self._refusals)
        # Times as text sort like times: they have one time zone, one format, and years of four digits.
        if early:
            rows.sort(key=lambda row: (-row.priority, row.id not in early, row.run_after, row.id))
        else:
            rows.sort(key=lambda row: (-row.priority, row.run_after, row.id))
        if self._refusals.left_behind:
            self._keyed_until = monotonic() + 1.0
        else:
            whole = len(rows) < asked["limit"] and not is_full
            # The marks must not jump over jobs that are older than one that was taken before its time.
            timely = [row for row in rows if row.id not in early] if early else rows
            refused = is_full or any(self._refusals)
            self._places.claimed(timely, asked, monotonic(), whole=whole, refused=refused)
        if "groups" in asked:
            rows = in_turn(rows)
        if logger.isEnabledFor(logging.DEBUG):
            queues = Counter(row.queue_name for row in rows)
            logger.debug(
                "claimed %d of at most %d jobs in %.1f ms%s",
                len(rows), asked["limit"], seconds * 1000,
                "".join(f", {count} of {name}" for name, count in queues.most_common()),
            )  # fmt: skip
        return rows

    def claim_again(self, session: Session, rows: list[Claimed]) -> set[int]:
        """Claim jobs under the leases under which they run here, if their rows are as before the claim and
        their keys have room. Return their ids. A server crash may lose a claim: its commit is asynchronous.
        """
        claimed: set[int] = set()
        if not rows:
            return claimed
        found = session.rows(_FREE_SQL, ([row.id for row in rows],))
        free = {(job_id, attempts + 1, crashes) for job_id, attempts, crashes in found}
        rows = [row for row in rows if (row.id, row.attempts, row.crash_count) in free]
        for lease in {row.lease for row in rows}:
            group = [row for row in rows if row.lease == lease]
            places = {(row.queue_name, row.priority) for row in group}
            parameters = {
                "queues": [name for name, _ in places], "priorities": [priority for _, priority in places],
                # No other job is behind this mark.
                "marks": ["infinity"] * len(places), "mark_ids": [0] * len(places),
                "first": [row.id for row in group], "limit": len(group),
                "worker": self._worker, "lease": lease,
            }  # fmt: skip
            answer = split_answer(session.rows(claim_sql(), parameters))
            self._following += answer.refusals.following
            claimed |= {row.id for row in answer.rows}
        if claimed:
            logger.warning("claimed running jobs again, whose claims the server has lost: %d", len(claimed))
        return claimed

    def last_refusals(self) -> Refusals:
        """Return, once, what the gate did with the jobs of the last claim that may not start."""
        refusals, self._refusals = self._refusals, Refusals()
        return refusals

    def may_search(self, now: float) -> bool:
        """Return whether the last search for new ranges is long enough ago to search again under load."""
        return now - self._searched >= 0.05 and (self._places.has_groups or now >= self._next_rescan)

    @property
    def rest(self) -> float:
        """How many seconds a worker that sleeps should leave between two searches through all queues."""
        return SLEEP_RATION * self._search_seconds

    def search(
        self, session: Session, named: Collection[str] = (), *, asleep: bool = True, thorough: bool = False
    ) -> tuple[bool, float | None]:
        """Search for new ranges. Return whether a job is due, and the seconds until the next one that is not.

        This searches all queues if they are not so many that it is too soon for that, or if it must be
        ``thorough``; otherwise the ranges that were ``named``, and ranges whose next job has come due. It
        rescans from the start if the ration allows it. Otherwise it only searches the gaps.

        Race: no session announces a job to a worker that is not ``asleep``. If a search through all queues
        takes long, it comes when the worker is, or only the next would find what is enqueued meanwhile.
        """
        if self._orders.everything or (self._queues is not None and not self._open(self._queues)):
            return False, None
        started = self._searched = monotonic()
        places = self._places
        wanted = {*named, *(name for name, due_at in self._coming.items() if due_at <= started)}
        self._owes_full_search = self._owes_full_search or not asleep
        # A shorter search serves better if queues are named, and if it must come again soon.
        rather = self._search_seconds and (wanted or not asleep)
        is_allowed = started >= self._next_full_search and not rather
        full = thorough or is_allowed or (self._coming_until is not None and started >= self._coming_until)
        rescan = full and (thorough or started >= self._next_rescan)
        queues = self._queues
        if not full:
            queues = [name for name in wanted.intersection(queues or wanted) if name not in self._except]
        known = places.known(rescan=rescan)
        where = (queues if queues is None else self._open(queues), [*self._except, *self._orders.queues])
        found = [FirstDue(*row) for row in session.rows(FIRST_DUE_SQL, (*where, *known, ARRIVALS))]
        now = monotonic()
        if full:
            self._searched_all(found, now - started, now)
            self._owes_full_search = not asleep
        if rescan:
            self._next_rescan = now + max(RESCAN_SOONEST, RESCAN_RATION * (now - started))
            places.begin_passes(now)
        due = self._learn(found, wanted, now)
        found_groups = self._go_on_with_passes(session, now, due=due)
        looks = [*self._coming.values(), *([self._next_full_search] if self._owes_full_search else ())]
        return found_groups or due, max(0.0, min(looks) - now) if looks else None

    def _searched_all(self, found: list[FirstDue], seconds: float, now: float) -> None:
        """Note what a search through all queues has cost, and what it may have left out."""
        new = [first.due_in for first in found if not first.is_known]
        coming = [due_in for due_in in new if due_in > 0]
        more_due = len(new) - len(coming) >= MOST_RANGES  # they are found as soon as these have been read
        more_coming = len(coming) >= MOST_COMING
        self._search_seconds = seconds if more_coming or len(found) > MANY_RANGES else 0.0
        self._next_full_search = now + (0.0 if more_due else SEARCH_RATION * self._search_seconds)
        self._coming.clear()
        self._coming_until = now + max(coming) if more_coming else None

    def _learn(self, found: list[FirstDue], searched: Collection[str], now: float) -> bool:
        """Learn what a search has found. Return whether a job is due."""
        for name in searched:
            self._coming.pop(name, None)
        for first in found:
            if first.due_in > 0:
                due_at = now + first.due_in
                self._coming[first.queue_name] = min(due_at, self._coming.get(first.queue_name, due_at))
        self._places.learn([first for first in found if first.due_in <= 0 or first.is_known], now)
        self._places.forget(now)
        return any(first.due_in <= 0 for first in found)

    def _open(self, queues: Iterable[str]) -> list[str]:
        return [name for name in queues if not self._orders.stops(name)]

    def _go_on_with_passes(self, session: Session, now: float, *, due: bool) -> bool:
        """Go on with the passes through the groups: a step at a time while jobs are ``due``, otherwise until
        one is found. Return whether one was."""
        found: list[FirstDue] = []
        for key, groups in self._places.passes():
            while groups.after is not None and not (found or (due and now < self._next_step)):
                began = monotonic()
                rows = session.rows(GROUPS_SQL, (*key, *key, groups.after, SLICE))
                step = [FirstDue(*row) for row in rows]
                now = monotonic()
                groups.passed(step, now, now - began)
                found += [first for first in step if first.due_in <= 0]
                self._next_step = now + (now - began) * STEP_RATION
        return bool(found)


_FILL_SQL = sql_of(__file__, "fill_policies")


def fill_policies(session: Session, rows: list[Claimed]) -> list[Claimed]:
    """Return jobs that were enqueued with plain SQL with the policy of their tasks, which is also written to
    the table before they run.

    A row whose task is unknown here does not change: it will be requeued. If a job must not run twice, this
    waits for the disk, also for its claim, which did not know that.
    """
    filled: dict[int, Claimed] = {}
    expiries: list[float | None] = []
    for row in rows:
        try:
            policy = find_task(row.task_path).policy()
        except UnknownTask:
            continue
        expiries.append(policy.expires_after)
        filled[row.id] = row._replace(
            max_attempts=row.max_attempts or policy.max_attempts,
            timeout=row.timeout or policy.timeout,
            on_lost=policy.on_lost,
        )
    if not filled:
        return rows
    columns = [
        [getattr(row, name) for row in filled.values()]
        for name in ("id", "lease", "max_attempts", "timeout", "on_lost")
    ]
    durable = any(row.on_lost == "fail" for row in filled.values())
    (answer,) = session.run((_FILL_SQL, (*columns, expiries)), durable=durable)
    for (job_id,) in answer:
        filled[job_id] = filled[job_id]._replace(expired=True)
    return [filled.get(row.id, row) for row in rows]
