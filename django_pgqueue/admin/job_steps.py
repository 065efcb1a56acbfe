"""The steps of a job as they are shown on its page, in the order in which they ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.db.models import F
from django.utils.dateparse import parse_datetime
from django.utils.translation import gettext as _

from ..models.step import Step
from ..redaction import redact
from ..step_rules import HAS_STEPS
from . import display, job_texts

if TYPE_CHECKING:
    from datetime import datetime

    from ..models import Job

__all__ = ["shown_steps"]

_COLUMNS = ("name", "kind", "attempt", "seconds", "wake_at", "finished_at", "result")


def shown_steps(job: Job, *, full: bool) -> list[dict[str, Any]]:
    """Return what the template shows of each step, without their results unless ``full``."""
    return [step if full else {**step, "result": ""} for step in _steps(job)]


def _steps(job: Job) -> list[dict[str, Any]]:
    """Return the steps: of live jobs from their table, of others from the row."""
    if job.is_over:
        return [_shown(step, job.task_path) for step in job.steps or []]
    if not job.marks & HAS_STEPS:
        return []
    steps = Step.objects.using(job._state.db).filter(job_id=job.pk)
    rows = steps.order_by(F("finished_at").asc(nulls_last=True)).values(*_COLUMNS)
    return [_shown(step, job.task_path) for step in rows]


def _shown(step: dict[str, Any], task_path: str) -> dict[str, Any]:
    kind, result = step.get("kind", ""), step.get("result")
    seconds = step.get("seconds")
    return {
        "name": job_texts.breakable(str(step.get("name", ""))),
        "kind": dict(Step.Kind.choices).get(kind, kind),
        "attempt": step.get("attempt") or "",
        "took": "" if seconds is None else display.span(seconds),
        "when": _when(step),
        "result": "" if result is None else job_texts.json_value(redact(result, task_path)),
    }


def _when(step: dict[str, Any]) -> str:
    """When the step ended, or what it still waits for."""
    finished, wakes = _moment(step.get("finished_at")), _moment(step.get("wake_at"))
    if finished is not None:
        return display.time(finished)
    if wakes is None or step.get("kind") == Step.Kind.SIGNAL:
        return _("waits")
    return _("until %(time)s") % {"time": display.plain_time(wakes)}


def _moment(value: Any) -> datetime | None:
    """Return a time, which is text in the history."""
    if not isinstance(value, str):
        return value  # type: ignore[no-any-return]
    try:
        return parse_datetime(value)
    except ValueError:
        return None
