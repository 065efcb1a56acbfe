"""What ended last: the jobs of a worker, and where the jobs of a task came from.

No index finds the jobs of a worker or a task in the history, so these figures are about the jobs that ended
last, of all workers and tasks: a bounded number, however long the history is.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

from django.db.models import F
from django.utils.dateparse import parse_datetime

from ..jobs.steps import HAS_STEPS
from ..models import Job
from ..models.job import Step
from ..postgres import sql_of
from ..postgres.timeout import rows_within
from ..tasks.registry import KEPT_QUEUES

WINDOW = 5_000  # jobs
SOME = 100
PATIENCE = 2.0  # seconds
_RECENT = KEPT_QUEUES + sql_of(__file__, "recent")
_OF_WORKER, _CALLERS = (_RECENT + sql_of(__file__, f"recent_{name}") for name in ("of_worker", "callers"))


class Ended(NamedTuple):
    """A job that a worker has ended."""

    id: int
    task_path: str
    queue_name: str
    status: str
    finished_at: datetime
    duration: float | None
    attempts: int


class Callers(NamedTuple):
    """Where the last jobs of a task came from."""

    jobs: int = 0  # how many jobs were looked at
    in_batches: int = 0
    for_users: int = 0  # jobs that were enqueued for a user, if CONTEXT has "user"
    after_others: int = 0  # jobs that were enqueued to run after other jobs or batches
    parents: Sequence[str] = ()  # the tasks of these other jobs


def ended_by(alias: str, worker: int, most: int = 20) -> tuple[list[Ended], float, float]:
    """Return the jobs that a worker ended lately, the latest first; how many seconds these look back, 0 if
    that is unknown; and how many it ended in them, without failed ones. Raises ``TimeLimitReached``.
    """
    rows = _read(alias, _OF_WORKER, {"worker": worker, "most": most})
    *_job, seconds, done = rows[0] if rows else (0, 0)
    return [Ended(*row[:-2]) for row in rows], seconds or 0.0, done


def callers(alias: str, task: str) -> Callers:
    """Return where the last jobs of a task came from. Raises ``TimeLimitReached``."""
    [row] = _read(alias, _CALLERS, {"task": task, "most": SOME})
    return Callers(*row)


def _read(alias: str, statement: str, parameters: dict[str, Any]) -> list[Any]:
    return rows_within(alias, PATIENCE, statement, {"window": WINDOW, "some": SOME, **parameters})


_COLUMNS = ("name", "kind", "attempt", "seconds", "wake_at", "finished_at", "result")


def recorded_steps(job: Job) -> list[dict[str, Any]]:
    """Return the steps in the order of their ends: of live jobs from their table, of others from the row."""
    if job.is_finished:
        steps = [{**dict.fromkeys(_COLUMNS), **step} for step in job.steps or []]
    elif job.marks & HAS_STEPS:
        rows = Step.objects.using(job._state.db).filter(job_id=job.pk)
        steps = list(rows.order_by(F("finished_at").asc(nulls_last=True)).values(*_COLUMNS))
    else:
        steps = []
    return [
        {**step, "wake_at": moment(step["wake_at"]), "finished_at": moment(step["finished_at"])}
        for step in steps
    ]


def moment(value: Any) -> datetime | None:
    """Return a time, which is text in the history. None if it is no time."""
    if not isinstance(value, str):
        return value  # type: ignore[no-any-return]
    try:
        return parse_datetime(value)
    except ValueError:
        return None
