"""The recorded steps of a job, for its page and the command, in the order in which they ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.db.models import F
from django.utils.dateparse import parse_datetime

from ..models.step import Step
from ..step_rules import HAS_STEPS

if TYPE_CHECKING:
    from datetime import datetime

    from ..models import Job

__all__ = ["moment", "recorded_steps"]

_COLUMNS = ("name", "kind", "attempt", "seconds", "wake_at", "finished_at", "result")


def recorded_steps(job: Job) -> list[dict[str, Any]]:
    """Return the steps: of live jobs from their table, of others from the row."""
    if job.is_over:
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
