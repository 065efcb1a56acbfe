"""The outcomes that wait to be reported: when to send them, and what to do when the server refuses one.

    waiting --in one statement with all others--> reported
    waiting --the statement is refused--> one by one: the bad one fails, the others are reported
    waiting --somebody holds the lock of a row--> one by one: that one is held back, and tried each second

Nothing that one job does, or that is done to its row, may keep the outcomes of the others back.
"""

from __future__ import annotations

import json
import logging
from time import monotonic
from typing import TYPE_CHECKING, Any

import psycopg

from ... import conf
from ...lifecycle.finish import FINISH_SQL, Outcome, finish_parameters

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ...session import Session
    from ..executor.outcomes import Result

__all__ = ["LOCKED", "REFUSALS", "Completer", "accepted"]

logger = logging.getLogger(__name__)

#: The server refuses what it was sent; asking again will not help.
REFUSALS = (
    psycopg.DataError,
    psycopg.ProgrammingError,
    psycopg.IntegrityError,
    psycopg.NotSupportedError,
    psycopg.errors.ProgramLimitExceeded,  # an OperationalError, but no outage: too large
    psycopg.errors.StatementTooComplex,  # and too deep
)

#: Somebody else holds a lock: of the row of a job, or of the table.
LOCKED = (psycopg.errors.LockNotAvailable, psycopg.errors.QueryCanceled)

SHORT_LOCK_TIMEOUT = "50ms"
TRY_LOCKED_AGAIN = 1.0  # seconds
TABLE_IS_LOCKED = 3  # rows in a row: the others need not be tried

COLLECT_SECONDS = 0.005
"""How long outcomes wait for company: one commit for many, and nobody sees the difference."""


class Completer:
    """Collects outcomes and builds the statement that reports them."""

    def __init__(self) -> None:
        self._waiting: list[Result] = []
        self._since = 0.0
        self._locked: list[Result] = []
        self._try_locked_at = 0.0

    def __len__(self) -> int:
        return len(self._waiting) + len(self._locked)

    def ids(self) -> set[int]:
        """The jobs whose outcomes wait."""
        return {result.row.id for result in [*self._waiting, *self._locked]}

    def add(self, results: list[Result]) -> None:
        """Take outcomes in."""
        if results and not self._waiting:
            self._since = monotonic()
        self._waiting += results

    def due(self, now: float, enough: int) -> bool:
        """Whether to report now: there are ``enough``, or the first has waited its time."""
        return bool(self._waiting) and (len(self._waiting) >= enough or now - self._since >= COLLECT_SECONDS)

    def seconds_left(self, now: float) -> float:
        """Until the outcomes are due by their age; ``inf`` where there are none."""
        times = [self._since + COLLECT_SECONDS] if self._waiting else []
        if self._locked:
            times.append(self._try_locked_at)
        return max(0.0, min(times, default=float("inf")) - now)

    def statement(self) -> tuple[str, Any] | None:
        """The report of all that wait; None if there is nothing to say."""
        outcomes = self._outcomes()
        if not outcomes:
            return None
        return FINISH_SQL, finish_parameters(outcomes, conf.current().keep_errors)

    def reported(self, accepted: Iterable[int]) -> list[Result]:
        """The answer has come: what was reported. A job that is not among the accepted had lost its lease."""
        ids = set(accepted)
        results, self._waiting = self._waiting, []
        return [result if result.reported or result.row.id in ids else _lost(result) for result in results]

    def report_one_by_one(self, session: Session) -> list[Result]:
        """The server has refused the batch: find whose fault it is. That job fails, the others do not. What
        cannot be reported now because somebody holds its lock is held back.
        """
        ids: list[int] = []
        locked: set[int] = set()
        in_a_row = 0
        for outcome in self._outcomes():
            if in_a_row >= TABLE_IS_LOCKED:
                locked.add(outcome.id)
                continue
            try:
                ids += self._report_one(session, outcome)
                in_a_row = 0
            except LOCKED:
                locked.add(outcome.id)
                in_a_row += 1
        self._hold_back(locked)
        return self.reported(ids)

    def try_locked_again(self, now: float) -> bool:
        """Whether there are outcomes that were held back, and it is time; they wait with the others then."""
        if not self._locked or now < self._try_locked_at:
            return False
        self.add(self._locked)
        self._locked = []
        return True

    def _report_one(self, session: Session, outcome: Outcome) -> list[int]:
        try:
            return _report(session, outcome)
        except REFUSALS as refusal:
            logger.error("job %s: the server refuses its outcome, it fails: %s", outcome.id, refusal)
            failed = _refused(outcome, refusal)
            self._replace(outcome, failed)
        try:
            return _report(session, failed)
        except REFUSALS:
            logger.exception("job %s: the server refuses even its failure", outcome.id)
            return []

    def _hold_back(self, locked: set[int]) -> None:
        if locked:
            logger.warning("%d jobs cannot be reported yet: somebody holds a lock on their rows", len(locked))
            self._locked = [result for result in self._waiting if result.row.id in locked]
            self._waiting = [result for result in self._waiting if result.row.id not in locked]
            self._try_locked_at = monotonic() + TRY_LOCKED_AGAIN

    def _replace(self, old: Outcome, new: Outcome) -> None:
        self._waiting = [
            result._replace(outcome=new) if result.outcome is old else result for result in self._waiting
        ]

    def _outcomes(self) -> list[Outcome]:
        # In the order of the ids, as every statement that locks several jobs.
        return sorted(
            (result.outcome for result in self._waiting if not result.reported),
            key=lambda outcome: outcome.id,
        )


def accepted(answer: Iterable[tuple[list[int]]]) -> list[int]:
    """The ids of the jobs whose outcomes were taken, from the answer to a report."""
    return [job_id for (ids,) in answer for job_id in ids]


def _report(session: Session, outcome: Outcome) -> list[int]:
    parameters = finish_parameters([outcome], conf.current().keep_errors)
    impatiently = ("SELECT set_config('lock_timeout', %s, true)", (SHORT_LOCK_TIMEOUT,))
    _, answer = session.run(impatiently, (FINISH_SQL, parameters), durable=True)
    return accepted(answer)


def _lost(result: Result) -> Result:
    outcome = result.outcome
    logger.warning("job %s: the lease was lost, its outcome (%s) was refused", outcome.id, outcome.kind)
    return result._replace(outcome=outcome._replace(kind="lost"))


def _refused(outcome: Outcome, error: Exception) -> Outcome:
    """A failure in the place of an outcome that cannot be stored."""
    cls = type(error)
    entry = {
        "class": f"{cls.__module__}.{cls.__qualname__}",
        "message": str(error)[:2_000],
        "traceback": "The task ended, but the server refused to store its outcome.",
        "worker": "",
        "attempt": 0,
    }
    return Outcome(
        outcome.id,
        outcome.lease,
        "failed",
        error=json.dumps(entry),
        started=outcome.started,
        ran=outcome.ran,
    )
