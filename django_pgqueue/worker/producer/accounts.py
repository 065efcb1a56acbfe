"""Count and log the reported attempts."""

from __future__ import annotations

import json
from bisect import bisect_left
from time import monotonic
from typing import Any

from ...formatting import counted
from ...jobs.claim import Claimed
from ...jobs.finish import Outcome
from ...models.statistics import HISTOGRAM_BOUNDS
from ...postgres.arrays import number_array, text_array
from ...postgres.session import Session
from ...redaction import redact_text
from ...telemetry.log import Ending, is_logged, log_ending, logger
from ..executor.errors import Failure
from ..executor.outcomes import Result


class Accounts:
    """The accounts of one worker process."""

    def __init__(self) -> None:
        self.unknown_tasks = UnknownTasks()
        self._counter = Counter()

    def close(self, result: Result, claimed_at: float | None) -> None:
        """Count and log a reported attempt. ``claimed_at``: by the monotonic clock, if it is still known."""
        row, outcome, ran, _, failure, _ = result
        began = outcome.started or 0.0
        waited = row.waited + (began - claimed_at if claimed_at is not None and began else 0.0)
        self._counter.add(row, outcome.kind, max(0.0, waited), ran)
        log_job(row, outcome, waited, ran, failure)
        if outcome.kind == "unknown":
            self.unknown_tasks.met(row, outcome.reason)

    def write_if_due(self, session: Session, now: float) -> None:
        """Add the counts to the table of statistics and to the log, if it is time."""
        self.unknown_tasks.tell(now)
        if self._counter.due(now):
            self._counter.flush(session)

    def write(self, session: Session) -> None:
        """Add the counts now, because the worker ends."""
        self.unknown_tasks.tell(monotonic(), all_of_them=True)
        if self._counter.due(float("inf")):
            self._counter.flush(session)


# ----------------------------------------------------------------------------
# Count in memory what ran, for ``JobStat``. The counts are added to the table every ten seconds and at the
# end.

STAT_SQL = (
    "SELECT pgqueue_stat_v1(%s::timestamptz[], %s::text[], %s::text[], %s::bigint[], %s::bigint[],"
    " %s::bigint[], %s::bigint[], %s::text[], %s::text[], %s::double precision[], %s::double precision[])"
)
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


class Counter:
    """The counts since the last flush, by minute, queue and task. Only the producer uses it."""

    def __init__(self) -> None:
        self._minutes: dict[tuple[str, str, str], _Minute] = {}
        self._flushed = 0.0

    def add(self, row: Claimed, kind: str, waited: float, ran: float) -> None:
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

    def due(self, now: float) -> bool:
        """Return whether it is time to flush."""
        return bool(self._minutes) and now - self._flushed >= FLUSH_EVERY

    def flush(self, session: Session) -> None:
        """Add the counts to the table."""
        with session.aside("the statistics of tasks"):
            session.run((STAT_SQL, self.take(monotonic())))

    def take(self, now: float) -> tuple[Any, ...]:
        """Return the parameters of ``STAT_SQL`` for all counts, and reset them."""
        keys = sorted(self._minutes)
        minutes = [self._minutes[key] for key in keys]
        self._minutes = {}
        self._flushed = now
        return (
            text_array([f"{key[0]}:00+00" for key in keys]),
            text_array([key[1] for key in keys]),
            text_array([key[2] for key in keys]),
            *(number_array([minute.counts[column] for minute in minutes]) for column in range(4)),
            text_array([number_array(minute.wait) for minute in minutes]),
            text_array([number_array(minute.run) for minute in minutes]),
            number_array([minute.wait_seconds for minute in minutes]),
            number_array([minute.run_seconds for minute in minutes]),
        )


# ----------------------------------------------------------------------------
# Log a line for each attempt of this worker: how it ended, why, and when the job runs again.

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


def log_job(row: Claimed, outcome: Outcome, waited: float, ran: float, failure: Failure | None) -> None:
    """Log the line of a job, if its level is enabled."""
    if not is_logged(outcome.kind):
        return
    error = json.loads(outcome.error) if outcome.error is not None else None
    ending = Ending(
        outcome.kind,
        _WORDS.get(outcome.kind, outcome.kind),
        why=redact_text(_why(outcome, error), row.task_path),
        delay=outcome.delay or 0.0,
        error_class=error and error["class"],
        waited=waited,
        ran=ran,
        # A tuple, because logging would test the truth value of the exception itself, which may be False.
        exc_info=failure and (type(failure.error), failure.error, failure.error.__traceback__),
        scope=failure and failure.scope,
    )
    log_ending(row, ending)


def _why(outcome: Outcome, error: dict[str, Any] | None) -> str:
    """Return the reason that the worker gives, or else the first line of the exception, shortened."""
    if outcome.reason:
        return outcome.reason
    if error is None:
        return ""
    first = error["message"].partition("\n")[0]
    if len(first) > MESSAGE_LIMIT:
        first = first[: MESSAGE_LIMIT - 1] + "…"
    name = error["class"].removeprefix("builtins.")
    return f"{name}: {first}" if first else name


# ----------------------------------------------------------------------------
# Log one line per minute for each task that the worker does not know, regardless of how many jobs it has.
#
#     new --a job--> logged at once; for a minute, more jobs are only counted
#     counted --the minute is over--> logged with the count, and counted for another minute; without jobs:
#     forgotten

TELL_EVERY = 60.0  # seconds


class UnknownTasks:
    """The unknown tasks of one worker process. Used only by the producer."""

    def __init__(self) -> None:
        self._told: dict[str, float] = {}
        self._jobs: dict[str, tuple[int, str, str]] = {}
        """How many jobs of a task have come since then, and queue and reason of the last one."""

    def met(self, row: Claimed, reason: str | None) -> None:
        """A job of such a task has been requeued."""
        path = row.task_path
        count = self._jobs[path][0] if path in self._jobs else 0
        self._jobs[path] = count + 1, row.queue_name, reason or ""
        if path not in self._told:
            self._tell(path, monotonic())

    def tell(self, now: float, *, all_of_them: bool = False) -> None:
        """Log the lines that are due, or the lines of all tasks that have counts."""
        for path, told in list(self._told.items()):
            if all_of_them or now - told >= TELL_EVERY:
                self._tell(path, now)

    def _tell(self, path: str, now: float) -> None:
        if path not in self._jobs:
            del self._told[path]
            return
        count, queue_name, reason = self._jobs.pop(path)
        self._told[path] = now
        logger.warning(
            "the task %s is unknown here: requeued %s, the last one in queue %s: %s",
            path, counted(count, "job"), queue_name, reason,
            extra={"task_path": path, "queue_name": queue_name, "count": count},
        )  # fmt: skip
