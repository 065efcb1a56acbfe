"""Report outcomes and progress: when, and what to do when the server refuses an outcome. Then count and log
what was reported.

    waiting --in one statement with all others--> reported
    waiting --the statement is refused--> one by one: the bad one fails, the others are reported
    waiting --another session locks a row--> one by one: that one is held back and tried every second

No job, and nothing that is done to its row, may hold up the outcomes of the other jobs.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Callable, Iterable
from functools import partial
from time import monotonic
from typing import Any, TypeAlias

import psycopg

from ...formatting import counted, cut, get_logger
from ...jobs.claim import Claimed
from ...jobs.finish import Outcome, finish_statement
from ...models.statistics import HISTOGRAM_BOUNDS
from ...postgres import sql_of
from ...postgres.arrays import number_array, text_array
from ...postgres.session import Session
from ...redaction import redact_text
from ...telemetry.log import is_logged, log_ending, logger as job_logger
from ..executor.outcomes import Result

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
#: A row of the answer to a report: the ids of the accepted jobs, and of cancelled ones, if any.
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

    def due(self, now: float, enough: int, patience: float = COLLECT_SECONDS) -> bool:
        """Return whether to report now: there are ``enough``, or the first has waited for ``patience``."""
        return bool(self._waiting) and (len(self._waiting) >= enough or now - self._since >= patience)

    def seconds_left(self, now: float, patience: float = COLLECT_SECONDS) -> float:
        """Return the seconds until the outcomes are due by their age; ``inf`` if there are none."""
        due_at = self._since + patience if self._waiting else float("inf")
        if self._locked:
            due_at = min(due_at, self._try_locked_at)
        return max(0.0, due_at - now)

    def statement(self) -> tuple[str, Any] | None:
        """Return the statement that reports all waiting outcomes; None if there are none."""
        self._in_statement = len(self._waiting)
        outcomes = [result.outcome for result in self._waiting if not result.reported]
        return finish_statement(outcomes) if outcomes else None

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
            logger.warning("jobs cannot be reported yet because their rows are locked: %d", len(locked))
            # Others may be held back already: the next statement may meet a lock before they are tried again.
            if not self._locked:
                self._try_locked_at = monotonic() + TRY_LOCKED_AGAIN
            self._locked += [result for result in self._waiting if result.row.id in locked]
            self._waiting = [result for result in self._waiting if result.row.id not in locked]
        self._in_statement = len(self._waiting)
        return judged(self.sent(), answer)

    def readd_locked(self, now: float) -> bool:
        """If it is time, put the held-back outcomes among the others. Return whether there were any."""
        if not self._locked or now < self._try_locked_at:
            return False
        self.add(self._locked)
        self._locked = []
        return True


def judged(results: list[Result], answer: Iterable[Answer]) -> list[Result]:
    """Return the results as the server has answered them: accepted, lost with their lease, or cancelled."""
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
    """Report an outcome. If the server refuses it, the job fails. Return what was reported and the answer."""
    try:
        return result, finish(result.outcome)
    except REFUSALS as refusal:
        # Not an error: the job's own line says that it failed, and why.
        logger.warning("job %s: the server refused its outcome, so the job fails", result.row.id)
        failed = result._replace(outcome=refused(result.outcome, refusal), error=None, scope=None)
    try:
        return failed, finish(failed.outcome)
    except REFUSALS:
        logger.exception("job %s: the server refused even to store its failure", result.row.id)
        return failed, []


def _report(session: Session, outcome: Outcome) -> list[Answer]:
    impatiently = ("SELECT set_config('lock_timeout', %s, true)", (SHORT_LOCK_TIMEOUT,))
    _, answer = session.run(impatiently, finish_statement([outcome]), durable=True)
    return answer


def _cancelled(result: Result) -> Result:
    """Race: a job may be cancelled between the end of its run and the report, so the server decides."""
    if result.outcome.kind in {"release", "paused"}:
        return result  # it did not run here, so there is nothing to report
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


STAT_SQL = sql_of(__file__, "stat")
FLUSH_EVERY = 10.0  # seconds
# The column in which each kind of outcome is counted. Jobs that were given back unstarted are not counted.
_COLUMNS = {"done": 0, "failed": 1, "retry": 2, "cancelled": 3}


class _Minute:
    __slots__ = ("counts", "run", "run_seconds", "wait", "wait_seconds")

    def __init__(self) -> None:
        self.counts = [0, 0, 0, 0]
        self.wait = [0] * (len(HISTOGRAM_BOUNDS) + 1)
        self.run = [0] * (len(HISTOGRAM_BOUNDS) + 1)
        self.wait_seconds = self.run_seconds = 0.0


class Accounts:
    """What one process ran, by minute, queue and task: for ``JobStat``, every ten seconds and at the end."""

    def __init__(self) -> None:
        self.unknown_tasks = UnknownTasks()
        self._minutes: dict[tuple[str, str, str], _Minute] = {}
        self._flushed = 0.0

    def close(self, result: Result, claimed_at: float | None) -> None:
        """Count and log a reported attempt. ``claimed_at``: by the monotonic clock, if it is still known."""
        row, outcome, ran = result.row, result.outcome, result.ran
        began = outcome.started or 0.0
        waited = row.waited + (began - claimed_at if claimed_at is not None and began else 0.0)
        self.count(row, outcome.kind, max(0.0, waited), ran)
        log_job(result, waited)
        if outcome.kind == "unknown":
            self.unknown_tasks.met(row, outcome.reason)

    def count(self, row: Claimed, kind: str, waited: float, ran: float) -> None:
        """Count one attempt in the minute of its claim; ``waited`` and ``ran`` are in seconds."""
        column = _COLUMNS.get(kind)
        if column is None:
            return
        # "2026-11-21 01:38:16+00" up to the minute: this uses the database's clock and parses no time.
        key = (row.last_attempted_at[:16], row.queue_name, row.task_path)
        minute = self._minutes.get(key)
        if minute is None:
            minute = self._minutes[key] = _Minute()
        minute.counts[column] += 1
        minute.wait[bisect_left(HISTOGRAM_BOUNDS, waited)] += 1
        minute.run[bisect_left(HISTOGRAM_BOUNDS, ran)] += 1
        minute.wait_seconds += waited
        minute.run_seconds += ran

    def write(self, session: Session, now: float, *, is_last: bool = False) -> None:
        """Add the counts to the table of statistics and to the log, if it is time, or if the worker ends."""
        self.unknown_tasks.log(now, all_of_them=is_last)
        if not self._minutes or not (is_last or now - self._flushed >= FLUSH_EVERY):
            return
        keys = sorted(self._minutes)
        minutes = [self._minutes[key] for key in keys]
        self._minutes, self._flushed = {}, now
        parameters = (
            text_array([f"{key[0]}:00+00" for key in keys]),
            text_array([key[1] for key in keys]),
            text_array([key[2] for key in keys]),
            *(number_array([minute.counts[column] for minute in minutes]) for column in range(4)),
            text_array([number_array(minute.wait) for minute in minutes]),
            text_array([number_array(minute.run) for minute in minutes]),
            number_array([minute.wait_seconds for minute in minutes]),
            number_array([minute.run_seconds for minute in minutes]),
        )
        with session.aside("the statistics of tasks"):
            session.run((STAT_SQL, parameters))


MESSAGE_LIMIT = 200
"""How many characters of an error's message are in the line. The traceback below it has the rest."""
_WORDS = {
    "retry": "failed",
    "snooze": "snoozed",
    "release": "requeued",
    "wait": "waits for an event",
    "crash": "crashed its process",
    "lost": "lost its lease",
    "unknown": "is unknown here",
}


def log_job(result: Result, waited: float) -> None:
    """Log the line of an attempt, if its level is enabled: how it ended, why, and when the job runs again.

    Why: the reason that the worker gives, or else the first line of the exception, shortened.
    """
    row, outcome, raised = result.row, result.outcome, result.error
    if not is_logged(outcome.kind):
        return
    error = json.loads(outcome.error) if outcome.error is not None else None
    why = outcome.reason or ""
    if not why and error is not None:
        first = cut(error["message"].partition("\n")[0], MESSAGE_LIMIT)
        name = error["class"].removeprefix("builtins.")
        why = f"{name}: {first}" if first else name
    log_ending(
        row,
        outcome.kind,
        _WORDS.get(outcome.kind, outcome.kind),
        why=redact_text(why, row.task_path),
        delay=outcome.delay or 0.0,
        error_class=error and error["class"],
        waited=waited,
        ran=result.ran,
        # A tuple, because logging would test the truth value of the exception itself, which may be False.
        exc_info=None if raised is None else (type(raised), raised, raised.__traceback__),
        scope=result.scope,
    )


LOG_EVERY = 60.0  # seconds


class UnknownTasks:
    """Logs one line per minute for each task that the worker does not know, however many jobs it has.

    new --a job--> logged at once; for a minute, more jobs are only counted
    counted --the minute ends--> logged with the count, and counted for another minute
    counted --no job for a minute--> forgotten
    """

    def __init__(self) -> None:
        self._logged_at: dict[str, float] = {}
        self._jobs: dict[str, tuple[int, str, str]] = {}
        """How many jobs of a task have come since then, and queue and reason of the last one."""

    def met(self, row: Claimed, reason: str | None) -> None:
        """A job of such a task has been requeued."""
        path = row.task_path
        count = self._jobs[path][0] if path in self._jobs else 0
        self._jobs[path] = count + 1, row.queue_name, reason or ""
        if path not in self._logged_at:
            self._log(path, monotonic())

    def log(self, now: float, *, all_of_them: bool = False) -> None:
        """Log the lines that are due, or the lines of all tasks that have counts."""
        for path, logged_at in list(self._logged_at.items()):
            if all_of_them or now - logged_at >= LOG_EVERY:
                self._log(path, now)

    def _log(self, path: str, now: float) -> None:
        if path not in self._jobs:
            del self._logged_at[path]
            return
        count, queue_name, reason = self._jobs.pop(path)
        self._logged_at[path] = now
        job_logger.warning(
            "the task %s is unknown here: requeued %s, the last one in queue %s: %s",
            path, counted(count, "job"), queue_name, reason,
            extra={"task_path": path, "queue_name": queue_name, "count": count},
        )  # fmt: skip
