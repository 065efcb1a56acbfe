"""Report outcomes and progress: when, and what to do when the server refuses an outcome.

    waiting --in one statement with all others--> reported
    waiting --the statement is refused--> one by one: the bad one fails, the others are reported
    waiting --another session locks a row--> one by one: that one is held back and tried every second

No job, and nothing that is done to its row, may hold up the outcomes of the other jobs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from functools import partial
from time import monotonic
from typing import Any, TypeAlias

import psycopg

from ... import conf
from ...formatting import get_logger
from ...jobs.claim import Claimed
from ...jobs.finish import FINISH_SQL, Outcome, finish_parameters
from ...postgres.arrays import number_array, text_array
from ...postgres.session import Session
from ..executor.outcomes import Result
from ..executor.progress import WRITE_EVERY, Changed

logger = get_logger(__name__)


#: The server refuses what it was sent; sending it again does not help.
REFUSALS = (
    psycopg.DataError,
    psycopg.ProgrammingError,
    psycopg.IntegrityError,
    psycopg.NotSupportedError,
    psycopg.errors.ProgramLimitExceeded,  # too large: an OperationalError, but not an outage
    psycopg.errors.StatementTooComplex,  # nested too deeply: the same
)
#: A row of the answer to a report: the ids of the accepted jobs, and of those that were cancelled, if any.
Answer: TypeAlias = tuple[list[int], list[int] | None]
#: Another session holds a lock on the row of a job, or on the table.
LOCKED = (psycopg.errors.LockNotAvailable, psycopg.errors.QueryCanceled)
SHORT_LOCK_TIMEOUT = "50ms"
TRY_LOCKED_AGAIN = 1.0  # seconds
TABLE_IS_LOCKED = 3  # so many locked rows one after another: the others need not be tried
COLLECT_SECONDS = 0.005
"""How long outcomes wait for others, so that many share one commit. The delay is too short to matter."""


class Reporter:
    """Collects outcomes and builds the statement that reports them."""

    def __init__(self) -> None:
        self._waiting: list[Result] = []
        self._since = 0.0
        self._in_statement = 0
        self._locked: list[Result] = []
        self._try_locked_at = 0.0

    def __len__(self) -> int:
        return len(self._waiting) + len(self._locked)

    def ids(self) -> set[int]:
        """Return the ids of the jobs whose outcomes wait."""
        return {result.row.id for result in [*self._waiting, *self._locked]}

    def add(self, results: list[Result]) -> None:
        """Add outcomes."""
        if results and not self._waiting:
            self._since = monotonic()
        self._waiting += results

    def release(self, rows: list[Claimed], reason: str | None = None) -> None:
        """Requeue rows that will not run here, without counting an attempt."""
        self.add([Result(row, Outcome(row.id, row.lease, "release", reason=reason)) for row in rows])

    def due(self, now: float, enough: int) -> bool:
        """Return whether to report now: there are ``enough``, or the first has waited long enough."""
        return bool(self._waiting) and (len(self._waiting) >= enough or now - self._since >= COLLECT_SECONDS)

    def seconds_left(self, now: float) -> float:
        """Return the seconds until the outcomes are due by their age; ``inf`` if there are none."""
        due_at = self._since + COLLECT_SECONDS if self._waiting else float("inf")
        if self._locked:
            due_at = min(due_at, self._try_locked_at)
        return max(0.0, due_at - now)

    def statement(self) -> tuple[str, Any] | None:
        """Return the statement that reports all waiting outcomes; None if there are none."""
        self._in_statement = len(self._waiting)
        outcomes = [result.outcome for result in self._waiting if not result.reported]
        return (FINISH_SQL, finish_parameters(outcomes, conf.current().keep_errors)) if outcomes else None

    def sent(self) -> list[Result]:
        """Return the results in the statement, which wait no longer. Others may have been added since."""
        results = self._waiting[: self._in_statement]
        del self._waiting[: self._in_statement]
        self._since = monotonic()
        return results

    def report_one_by_one(self, session: Session) -> list[Result]:
        """Find the outcome for which the server refused the batch. That job fails, and the others do not.
        Outcomes that cannot be reported now because another session holds a lock are held back.
        """
        answer: list[Answer] = []
        locked: set[int] = set()
        in_a_row = 0
        for place, result in enumerate(self._waiting):
            if result.reported:
                continue
            if in_a_row >= TABLE_IS_LOCKED:
                locked.add(result.row.id)
                continue
            try:
                self._waiting[place], accepted = report_or_fail(result, partial(_report, session))
                answer += accepted
                in_a_row = 0
            except LOCKED:
                locked.add(result.row.id)
                in_a_row += 1
        if locked:
            self._hold_back(locked)
        self._in_statement = len(self._waiting)
        return judged(self.sent(), answer)

    def _hold_back(self, locked: set[int]) -> None:
        logger.warning("jobs cannot be reported yet because their rows are locked: %d", len(locked))
        # Others may be held back already: the next statement may meet a lock before they are tried again.
        if not self._locked:
            self._try_locked_at = monotonic() + TRY_LOCKED_AGAIN
        self._locked += [result for result in self._waiting if result.row.id in locked]
        self._waiting = [result for result in self._waiting if result.row.id not in locked]

    def readd_locked(self, now: float) -> bool:
        """If it is time, put the held-back outcomes among the others. Return whether there were any."""
        if not self._locked or now < self._try_locked_at:
            return False
        self.add(self._locked)
        self._locked = []
        return True


def judged(results: list[Result], answer: Iterable[Answer]) -> list[Result]:
    """Return the results as the server has answered them. The lease of a job that was not accepted was lost.
    A job that was to run again may be cancelled.
    """
    accepted: set[int] = set()
    cancelled: set[int] = set()
    for ids, over in answer:
        accepted.update(ids)
        cancelled.update(over or ())
    results = [
        result if result.reported or result.row.id in accepted else _lost(result) for result in results
    ]
    if cancelled:
        results = [_cancelled(result) if result.row.id in cancelled else result for result in results]
    return results


def report_or_fail(result: Result, finish: Callable[[Outcome], list[Answer]]) -> tuple[Result, list[Answer]]:
    """Report an outcome with ``finish``. If the server refuses it, the job fails. Return what was reported,
    and the answer.
    """
    try:
        return result, finish(result.outcome)
    except REFUSALS as refusal:
        # Not an error: the job's own line says that it failed, and why.
        logger.warning("job %s: the server refused its outcome, so the job fails", result.row.id)
        failed = result._replace(outcome=refused(result.outcome, refusal), failure=None)
    try:
        return failed, finish(failed.outcome)
    except REFUSALS:
        logger.exception("job %s: the server refused even to store its failure", result.row.id)
        return failed, []


def _report(session: Session, outcome: Outcome) -> list[Answer]:
    parameters = finish_parameters([outcome], conf.current().keep_errors)
    impatiently = ("SELECT set_config('lock_timeout', %s, true)", (SHORT_LOCK_TIMEOUT,))
    _, answer = session.run(impatiently, (FINISH_SQL, parameters), durable=True)
    return answer


def _cancelled(result: Result) -> Result:
    """Race: the job may be asked to cancel between the end of its run and the report. So the server decides
    whether it runs again.
    """
    if result.outcome.kind in {"release", "paused"}:
        return result  # it did not run here, so there is nothing to tell
    return result._replace(outcome=result.outcome._replace(kind="cancelled", delay=None))


def _lost(result: Result) -> Result:
    outcome = result.outcome
    logger.warning("job %s: the lease was lost, so its outcome (%s) was refused", outcome.id, outcome.kind)
    return result._replace(outcome=outcome._replace(kind="lost"))


def refused(outcome: Outcome, error: Exception) -> Outcome:
    """Return a failure to report in place of an outcome that cannot be stored."""
    cls = type(error)
    entry = {
        "class": f"{cls.__module__}.{cls.__qualname__}",
        "message": str(error)[:2_000].encode("utf-8", "replace").decode(),
        "traceback": "The task ended, but the server refused to store its outcome.",
        "worker": "",
        "attempt": 0,
    }
    text = json.dumps(entry, ensure_ascii=False)
    return Outcome(outcome.id, outcome.lease, "failed", error=text, started=outcome.started, ran=outcome.ran)


# ----------------------------------------------------------------------------
# Write what running jobs tell, at most once a second, for all jobs of the process in one statement.

WRITE_SQL = (
    "SELECT pgqueue_write_progress_v1(%s::bigint[], %s::bigint[], %s::text[], %s::double precision[],"
    " %s::double precision[], %s::text[])"
)


class ProgressWriter:
    """Belongs to one thread, which also reports the outcomes of these jobs, or does not report at all."""

    def __init__(self, changed: Changed) -> None:
        self._changed = changed
        self._wrote = 0.0

    def seconds_left(self, now: float) -> float:
        """Return the seconds until there is something to write."""
        if not self._changed:
            return float("inf")
        return 0.0 if self._changed.is_urgent else max(0.0, self._wrote + WRITE_EVERY - now)

    def write_if_due(self, session: Session, now: float) -> None:
        """Write what has changed, if a second has passed, or if an outcome must not be reported before."""
        if self._changed and not self.seconds_left(now):
            self.write(session)

    def write(self, session: Session) -> None:
        """Write what has changed. What cannot be written now is written later, while its job runs; what the
        server refuses is left out.
        """
        self._wrote = monotonic()
        jobs = self._changed.take()
        tells = [job.take() for job in jobs]
        if not tells:
            return
        later = {told.id for told in tells}
        progress = [told.progress for told in tells]
        parameters = (
            number_array([told.id for told in tells]),
            number_array([told.lease for told in tells]),
            text_array([told.step for told in tells]),
            number_array([each and each.done for each in progress]),
            number_array([each and each.total for each in progress]),
            text_array([each and each.note for each in progress]),
        )
        try:
            written: Iterable[int] = later
            with session.aside("the progress of jobs"):
                written = session.value(WRITE_SQL, parameters)
            later.difference_update(written)
        except psycopg.errors.LockNotAvailable:
            # A task has written its own progress in SQL, in a transaction that is still open.
            logger.info("the progress of %d jobs is written later: a row is locked", len(tells))
        finally:
            for job, told in zip(jobs, tells, strict=True):
                if told.id in later:
                    job.put_back(told)
