"""Everything about one job on the command line, as text and as JSON.

The ``now`` of a job is the time of the server when the job was read.
"""

from __future__ import annotations

import json
import textwrap
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from django.db.models import CharField, F, Func
from django.db.models.functions import Now
from django.utils.translation import gettext as _

from .. import conf
from ..explanation import why
from ..formatting import counted, period
from ..models import Worker
from ..models.job import Status
from ..models.progress import Step
from ..monitoring.jobs import moment, recorded_steps
from ..redaction import beginning, redact, redact_call, redact_text
from ._arguments import clock, iso
from ._output import Marks, cells, plain, plain_lines, table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

    from django.db.models import QuerySet

    from ..jobs.progress import Progress
    from ..models import Job

_WIDTH = 100
_BAR = 20


def job_as_json(job: Any, workers: dict[int, str]) -> dict[str, Any]:
    """Return the values of a job, with those that the list does not read."""
    _add_last_error(job)
    reason = why(job)
    args, kwargs = redact_call(job.args, job.kwargs, job.task_path)
    return {
        **row_as_json(job, workers),
        "why": {"code": reason.code, "text": redact_text(reason.text, job.task_path), "fix": reason.fix},
        "args": args,
        "kwargs": kwargs,
        "result": redact(job.result, job.task_path),
        "progress": progress_json(job, job.progress),
        "timeout": job.timeout,
        "expires_at": iso(job.expires_at),
        "deadline": iso(job.deadline),
        "on_lost": job.on_lost,
        "crashes": job.crash_count,
        "after": job.parent_ids or [],
        "user": job.user_id,
        "traceparent": job.traceparent,
        "steps": [_step_json(job, step) for step in recorded_steps(job)],
        "errors": [_redacted(job, error) for error in job.errors],
        "logs": [_redacted_log(job, log) for log in job.logs or []],
    }


def text(job: Any, workers: dict[int, str], width: int | None, marks: Marks) -> str:
    """Return what a person wants to know about a job, the most important first."""
    _add_last_error(job)
    width = width or _WIDTH
    lines = [f"Job {job.pk}: {plain(job.task_path)}, {job.status}"]
    facts = {f"{label}: ": value for label, value in _facts(job, workers, marks).items() if value}
    room = max(14, *map(cells, facts))
    for label, value in facts.items():
        lines += textwrap.wrap(
            f"  {label}{' ' * (room - cells(label))}{plain(value)}", width,
            subsequent_indent=" " * (room + 2), break_on_hyphens=False,
        )  # fmt: skip
    if steps := recorded_steps(job):
        head = (_("Step"), _("Kind"), _("Attempt"), _("Took"), _("Ended"))
        shown = table(head, [_step_row(step) for step in steps], width=width - 2, marks=marks)
        lines += ["", *(f"  {line}" for line in shown.splitlines())]
    lines += _errors(job, workers)
    lines += _logs(job)
    return "\n".join(lines)


def _facts(job: Any, workers: dict[int, str], marks: Marks) -> dict[str, str]:
    """Return the facts with their labels; those that are empty are not shown."""
    most = "" if job.max_attempts is None else f" of {job.max_attempts}"
    took = "" if job.duration is None else f", took {_seconds(job.duration)}"
    crashes = f", {counted(job.crash_count, 'crash', 'crashes')}" if job.crash_count else ""
    args, kwargs = redact_call(job.args, job.kwargs, job.task_path)
    reason = why(job)
    worker = "" if job.worker is None else f"{workers.get(job.worker, 'gone')} (id {job.worker})"
    return {
        _("Why"): redact_text(reason.text, job.task_path),
        _("What helps"): reason.fix,
        _("Progress"): _progress_text(job, marks),
        _("Queue"): f"{job.queue_name}, priority {job.priority}",
        _("Attempts"): f"{job.attempts}{most}{crashes}",
        _("Enqueued"): _time(job.enqueued_at, job.now),
        _("Runs after"): ""
        if job.is_finished or job.status == Status.RUNNING
        else _time(job.run_after, job.now),
        _("Started"): _time(job.started_at, job.now),
        _("Last attempt"): _time(job.last_attempted_at, job.now) if job.attempts > 1 else "",
        _("Deadline"): _time(job.deadline, job.now) if job.status == Status.RUNNING else "",
        _("Stop asked"): "" if job.is_finished else _time(job.cancel_requested_at, job.now),
        _("Ended"): _time(job.finished_at, job.now) + took if job.finished_at else "",
        _("Expires"): "" if job.is_finished else _time(job.expires_at, job.now),
        _("Worker"): worker,
        _("Batch"): str(job.batch_id or ""),
        _("After"): ", ".join(map(str, job.parent_ids or ())),
        _("Limit key"): job.limit_key or "",
        _("Group"): job.group_key or "",
        _("Unique key"): job.unique_key or "",
        _("User"): str(job.user_id or ""),
        _("Fingerprint"): job.error_fingerprint,
        _("Arguments"): _json(args) if args else "",
        _("Keywords"): _json(kwargs) if kwargs else "",
        _("Result"): "" if job.result is None else _json(redact(job.result, job.task_path)),
    }


def _progress_text(job: Job, marks: Marks) -> str:
    step = f"step {job.current_step}" if job.current_step and not job.is_finished else ""
    progress = job.progress
    if progress is None:
        return step
    bar = "" if progress.fraction is None else f"[{marks.bar(progress.fraction, _BAR)}] "
    note = redact_text(progress.note, job.task_path)
    told = f"{bar}{amount(progress)} {note}".strip()
    return ", ".join(filter(None, (told, step)))


def _errors(job: Job, workers: dict[int, str]) -> Iterator[str]:
    """Yield a line for each error that is kept, and the traceback of the last one."""
    if not job.errors:
        return
    yield ""
    yield f"  {counted(len(job.errors), 'error')}, the last one with its traceback:"
    for error in job.errors:
        name = str(error.get("class", "")).removeprefix("builtins.")
        where = f", step {error['step']}" if error.get("step") else ""
        at = moment(error.get("finished_at"))
        when = f", {clock(at)}" if at else ""
        message = redact_text(str(error.get("message", "")), job.task_path)
        yield plain(f"  attempt {error.get('attempt', '?')}{when}{where}: {name}: {message}")
    trace = redact_text(str(job.errors[-1].get("traceback", "")), job.task_path)
    for line in plain_lines(trace):
        yield f"    {line}"


def _logs(job: Job) -> Iterator[str]:
    """Yield what the last attempt has logged."""
    if not job.logs:
        return
    last = job.logs[-1]
    yield ""
    yield f"  Log of attempt {last.get('attempt', '?')}:"
    # Redacted as a whole, because a pattern may be about several lines.
    whole = redact_text("\n".join(map(_log_line, last.get("lines", []))), job.task_path)
    yield from (f"    {each}" for each in plain_lines(whole))
    if left_out := last.get("left_out"):
        yield f"    ({counted(left_out, 'line')} left out)"


def _log_line(line: dict[str, Any]) -> str:
    at, level, logger, message = (str(line.get(key, "")) for key in ("at", "level", "logger", "message"))
    return f"{at} {level} {logger}: {message}"


def _step_json(job: Job, step: dict[str, Any]) -> dict[str, Any]:
    return {
        **{name: step[name] for name in ("name", "kind", "attempt", "seconds")},
        "wake_at": iso(step["wake_at"]),
        "finished_at": iso(step["finished_at"]),
        "result": redact(step["result"], job.task_path),
    }


def _step_row(step: dict[str, Any]) -> tuple[str, ...]:
    ended, wakes, seconds = step["finished_at"], step["wake_at"], step["seconds"]
    waits = "waits" if wakes is None or step["kind"] == Step.Kind.EVENT else f"until {clock(wakes)}"
    return (
        str(step["name"] or ""),
        str(step["kind"] or ""),
        str(step["attempt"] or ""),
        "" if seconds is None else _seconds(seconds),
        clock(ended) if ended else waits,
    )


def _redacted(job: Job, entry: Any) -> Any:
    """Return an entry of the errors or the logs with its texts as they may be shown."""
    if isinstance(entry, dict):
        return {key: _redacted(job, value) for key, value in entry.items()}
    if isinstance(entry, list):
        return [_redacted(job, each) for each in entry]
    return redact_text(entry, job.task_path) if isinstance(entry, str) else entry


def _redacted_log(job: Job, log: dict[str, Any]) -> dict[str, Any]:
    """Return the log of an attempt with its messages redacted as a whole, because a pattern may be about
    several lines. If their number has changed by that, the first line has all of the text.
    """
    shown: dict[str, Any] = _redacted(job, log)
    messages = [str(line.get("message", "")) for line in log.get("lines", [])]
    heights = [message.count("\n") + 1 for message in messages]
    rest = redact_text("\n".join(messages), job.task_path).split("\n")
    if messages and len(rest) != sum(heights):
        heights = [len(rest), *[0] * (len(messages) - 1)]
    for line, height in zip(shown.get("lines", []), heights, strict=True):
        line["message"], rest = "\n".join(rest[:height]), rest[height:]
    return shown


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _add_last_error(job: Any) -> None:
    """Add what the list reads by itself."""
    last = job.errors[-1] if job.errors else {}
    job.last_class, job.last_message = last.get("class"), last.get("message")
    job.has_whole_message = True


def _time(time: datetime | None, now: datetime) -> str:
    if time is None:
        return ""
    ahead = time - now
    away = f"in {period(ahead)}" if ahead > timedelta() else f"{period(-ahead)} ago"
    return f"{clock(time)} ({away})"


def _seconds(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds < 60 else period(timedelta(seconds=seconds))


# ----------------------------------------------------------------------------
# A list of jobs on the command line: one row for each, as text and as JSON.
#
# What a job was called with, what it returned and its logs are not read: a list must be quick, and they may
# be large.

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


def row_as_json(job: Any, workers: dict[int, str]) -> dict[str, Any]:
    """Return the values of a row."""
    return {
        "id": job.pk,
        "status": job.status,
        "task": job.task_path,
        "queue_name": job.queue_name,
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
        "group_key": job.group_key,
        "limit_key": job.limit_key,
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
    return None if job.is_finished else job.progress


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
