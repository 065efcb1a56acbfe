"""The errors of a job as they are shown on its page, the last one first, redacted."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from django.utils.dateparse import parse_datetime

from ...redaction import redact_text
from .. import display
from ..failures.traces import application_part
from ..jobs import texts
from ..jobs.progress import progress_in_words

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...models import Job

__all__ = ["shown_errors", "worker_ids"]


def shown_errors(job: Job, worker: Callable[[int], str]) -> list[dict[str, Any]]:
    """Return what the template shows of each error. ``worker`` formats the id of a worker."""
    shown = [_shown(job, error, worker) for error in job.errors]
    for before, after in pairwise(shown):
        before["later"], after["earlier"] = after["attempt"], before["attempt"]
    return shown[::-1]


def worker_ids(job: Job) -> set[int]:
    """Return the ids of the workers of all attempts that are known."""
    keys = {job.worker, *map(_worker_id, job.errors)}
    return {key for key in keys if key is not None}


def _shown(job: Job, error: dict[str, Any], worker: Callable[[int], str]) -> dict[str, Any]:
    key = _worker_id(error)
    traceback = redact_text(str(error.get("traceback", "")), job.task_path)
    return {
        **error,
        "attempt": error.get("attempt", ""),
        "kind": texts.breakable(str(error.get("class", ""))),
        "message": redact_text(str(error.get("message", "")), job.task_path),
        "traceback": traceback,
        "frames": application_part(traceback),
        "came": progress_in_words(error.get("progress"), job.task_path),
        "started": _moment(error, "started_at"),
        "ended": _moment(error, "finished_at"),
        "by": "" if key is None else worker(key),
    }


def _moment(error: dict[str, Any], key: str) -> str:
    """Format a time of an error, which is text in JSON; invalid text is returned unchanged."""
    text = str(error.get(key) or "")
    try:
        return display.time(parse_datetime(text))
    except ValueError:
        return text


def _worker_id(error: dict[str, Any]) -> int | None:
    """Return the id of the worker of an error, which is text in JSON; None if it is invalid."""
    try:
        key = int(error.get("worker") or "")
    except ValueError:
        return None
    return key if -(2**63) <= key < 2**63 else None
