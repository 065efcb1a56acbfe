"""Finish: write the outcomes of a batch as arrays for ``_pgqueue_finish``."""

from __future__ import annotations

from operator import itemgetter
from time import monotonic
from typing import Any, Literal, NamedTuple

from .. import conf
from ..postgres import sql_of
from ..postgres.arrays import number_array, seconds_array, text_array

_FINISH_SQL = sql_of(__file__, "finish")
_FINISH_ONE_SQL = sql_of(__file__, "finish_one")

#: How a job ended. Two kinds are never reported, because the row already shows them: crash (the job crashed
#: the process in which it ran isolated) and lost (the worker lost the lease).
Kind = Literal[
    "done", "failed", "cancelled", "retry", "snooze", "wait", "release", "unknown", "paused", "crash", "lost"
]  # fmt: skip


class Outcome(NamedTuple):
    """How one claimed job ended."""

    id: int
    lease: int
    kind: Kind = "done"
    result: str | None = None  # JSON
    error: str | None = None  # JSON, one entry of Job.errors
    fingerprint: str | None = None
    delay: float | None = None  # seconds until the next run
    started: float | None = None  # time.monotonic() when the task started; None: it never started
    ran: float | None = None  # seconds that the task ran, without the wait for its report
    reason: str | None = None
    log: str | None = None  # JSON, one entry of Job.logs


def finish_statement(outcomes: list[Outcome]) -> tuple[str, tuple[Any, ...]]:
    """Return the statement for these outcomes. An unused column is sent as NULL, not as an array of NULLs."""
    # All functions that lock several jobs lock them in the order of id, so that they do not deadlock.
    columns = zip(*sorted(outcomes, key=itemgetter(0)), strict=True)
    ids, leases, kinds, results, errors, fingerprints, delays, starts, runs, reasons, logs = columns
    now = monotonic()
    return _FINISH_SQL, (
        number_array(ids),
        number_array(leases),
        None if kinds.count("done") == len(kinds) else text_array(kinds),
        _texts(results),
        _texts(errors),
        _texts(fingerprints),
        None if delays.count(None) == len(delays) else number_array(delays),
        seconds_array([None if start is None else now - start for start in starts]),
        seconds_array(runs),
        _texts(reasons),
        conf.current().keep_errors,
        _texts(logs),
    )


def finish_one_statement(outcome: Outcome) -> tuple[str, tuple[Any, ...]]:
    """Return the statement for an outcome that is written in the transaction of its task."""
    started = None if outcome.started is None else monotonic() - outcome.started
    keep_errors = conf.current().keep_errors
    return _FINISH_ONE_SQL, (*outcome[:7], started, outcome.ran, outcome.reason, keep_errors, outcome.log)


def _texts(values: tuple[str | None, ...]) -> str | None:
    return None if values.count(None) == len(values) else text_array(values)
