"""A list of jobs on the command line: one row for each, as text and as JSON.

What a job was called with, what it returned and its logs are not read: a list must be quick, and they may
be large.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.db.models import CharField, F, Func
from django.db.models.functions import Now
from django.utils.translation import gettext as _

from .. import conf
from ..models import Worker
from ..models.job import Status
from ..redaction import beginning, redact_text
from ..wording import period
from ._moments import iso
from ._output import Marks, table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from django.db.models import QuerySet

    from ..models import Job
    from ..progress import Progress

__all__ = ["amount", "as_json", "error_line", "listing", "progress_json", "readable", "worker_names"]

_COLUMNS = (
    "id", "shelf", "status", "task_path", "queue_name", "priority", "run_after", "enqueued_at",
    "max_attempts", "limit_key", "group_key", "unique_key", "batch_id", "attempts", "marks",
    "current_step", "worker", "started_at", "last_attempted_at", "cancel_requested_at",
    "waiting_reason", "finished_at", "duration", "error_fingerprint", "live_progress__at",
    "live_progress__done", "live_progress__total", "live_progress__note",
)  # fmt: skip
_MESSAGE = 300
_READ = 4_000  # characters, if patterns are to find something in them


def readable(jobs: QuerySet[Job]) -> QuerySet[Any]:
    """Let jobs be read with what a row shows, and nothing large. ``now`` is the time of the server."""
    rows: QuerySet[Any] = jobs.select_related("live_progress").only(*_COLUMNS)
    last = {f"last_{name}": _of_last_error(name) for name in ("class", "message")}
    annotated: QuerySet[Any] = rows.annotate(**last, now=Now())
    return annotated


def _of_last_error(name: str) -> Func:
    most = _MESSAGE if conf.current().redact.are_names else _READ
    template = f"left(%(expressions)s -> -1 ->> '{name}', {most})"
    return Func(F("errors"), template=template, output_field=CharField())


def worker_names(alias: str, jobs: Sequence[Any]) -> dict[int, str]:
    """Return the names of the workers of some jobs, as far as they still have a row."""
    ids = {job.worker for job in jobs if job.worker is not None}
    workers = Worker.objects.using(alias).filter(pk__in=ids) if ids else ()
    return {worker.pk: str(worker) for worker in workers}


def listing(jobs: Sequence[Any], workers: dict[int, str], width: int | None, marks: Marks) -> str:
    """Return the table."""
    rows = [
        (
            str(job.pk),
            job.status,
            job.queue_name,
            job.task_path,
            str(job.attempts) if job.max_attempts is None else f"{job.attempts}/{job.max_attempts}",
            _when(job),
            workers.get(job.worker, "gone") if job.status == Status.RUNNING else "",
            _about(job),
        )
        for job in jobs
    ]
    head = (
        _("ID"), _("Status"), _("Queue"), _("Task"), _("Attempts"), _("When"), _("Worker"), _("About")
    )  # fmt: skip
    return table(head, rows, right={0}, width=width, marks=marks)


def as_json(job: Any, workers: dict[int, str]) -> dict[str, Any]:
    """Return the values of a row."""
    return {
        "id": job.pk,
        "status": job.status,
        "task": job.task_path,
        "queue": job.queue_name,
        "priority": job.priority,
        "attempts": job.attempts,
        "max_attempts": job.max_attempts,
        "enqueued_at": iso(job.enqueued_at),
        "run_after": iso(job.run_after),
        "started_at": iso(job.started_at),
        "last_attempted_at": iso(job.last_attempted_at),
        "cancel_requested_at": iso(job.cancel_requested_at),
        "finished_at": iso(job.finished_at),
        "duration": job.duration,
        "worker": job.worker,
        "worker_name": workers.get(job.worker) if job.worker is not None else None,
        "reason": redact_text(job.waiting_reason, job.task_path),
        "batch": job.batch_id,
        "group": job.group_key,
        "concurrency_key": job.limit_key,
        "unique_key": job.unique_key,
        "step": job.current_step or None,
        "progress": progress_json(job, _progress(job)),
        "fingerprint": job.error_fingerprint or None,
        "error": {"class": job.last_class, "message": _message(job)} if job.last_class else None,
    }


def progress_json(job: Any, progress: Progress | None) -> dict[str, Any] | None:
    """Return how far a job is, as values."""
    if progress is None:
        return None
    note = redact_text(progress.note, job.task_path)
    return {**progress._asdict(), "note": note, "fraction": progress.fraction}


def amount(progress: Progress) -> str:
    """Return how far a job is, such as "1,204 of 5,000 (24 %)"."""
    if progress.total is None or progress.fraction is None:
        return f"{progress.done:,} done"
    return f"{progress.done:,} of {progress.total:,} ({int(100 * progress.fraction)} %)"


def error_line(job: Any) -> str:
    """Return the last error of a job in one line; empty if it has none."""
    if not job.last_class:
        return ""
    name = job.last_class.removeprefix("builtins.").rpartition(".")[2]
    message = _message(job)
    return f"{name}: {message}" if message else name


def _message(job: Any) -> str:
    """Return the message of the last error. That of a list is cut; that of one job is not."""
    message = job.last_message or ""
    if getattr(job, "has_whole_message", False):
        return redact_text(message, job.task_path)
    return beginning(message, _READ, job.task_path, _MESSAGE)


def _progress(job: Any) -> Progress | None:
    """Return how far a live job is. The list does not read how far a failed one came."""
    return None if job.is_over else job.progress


def _when(job: Any) -> str:
    now = job.now
    if job.finished_at is not None:
        return f"{period(now - job.finished_at)} ago"
    if job.status == Status.RUNNING:
        return f"for {period(now - (job.last_attempted_at or now))}"
    if job.status == Status.BLOCKED:
        return f"since {period(now - job.enqueued_at)}"
    ahead = job.run_after - now
    return f"in {period(ahead)}" if ahead.total_seconds() > 0 else f"due for {period(-ahead)}"


def _about(job: Any) -> str:
    """Return the one fact that says most about a job."""
    if job.status == Status.RUNNING:
        progress = _progress(job)
        step = f"step {job.current_step}" if job.current_step else ""
        note = "" if progress is None else redact_text(progress.note, job.task_path)
        told = "" if progress is None else f"{amount(progress)} {note}".strip()
        asked = "asked to stop" if job.cancel_requested_at else ""
        return ", ".join(filter(None, (asked, step, told)))
    if job.status in (Status.FAILED, Status.RETRY):
        return error_line(job) or redact_text(job.waiting_reason, job.task_path)
    return redact_text(job.waiting_reason, job.task_path)
