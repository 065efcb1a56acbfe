"""The steps of a job as they are shown on its page, in the order in which they ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.utils.translation import gettext as _
from django.utils.translation import pgettext

from ...figures.steps import recorded_steps
from ...models.step import Step
from ...redaction import redact
from .. import display
from ..jobs import texts

if TYPE_CHECKING:
    from ...models import Job

__all__ = ["shown_steps"]


def shown_steps(job: Job, *, full: bool) -> list[dict[str, Any]]:
    """Return what the template shows of each step, without their results unless ``full``."""
    shown = [_shown(step, job.task_path) for step in recorded_steps(job)]
    return shown if full else [{**step, "result": ""} for step in shown]


def _shown(step: dict[str, Any], task_path: str) -> dict[str, Any]:
    kind, result, seconds = step["kind"] or "", step["result"], step["seconds"]
    return {
        "name": texts.breakable(str(step["name"] or "")),
        "kind": dict(Step.Kind.choices).get(kind, kind),
        "attempt": step["attempt"] or "",
        "took": "" if seconds is None else display.span(seconds),
        "when": _when(step),
        "result": "" if result is None else texts.json_value(redact(result, task_path)),
    }


def _when(step: dict[str, Any]) -> str:
    """When the step ended, or what it still waits for."""
    finished, wakes = step["finished_at"], step["wake_at"]
    if finished is not None:
        return display.time(finished)
    if wakes is None or step["kind"] == Step.Kind.SIGNAL:
        return pgettext("step", "waits")
    return display.filled(_("until %(time)s"), time=display.time(wakes))
