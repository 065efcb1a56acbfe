"""Everything about one job on the command line, as text and as JSON.

The ``now`` of a job is the time of the server when the job was read.
"""

from __future__ import annotations

import json
import textwrap
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from django.utils.translation import gettext as _

from ..figures.steps import moment, recorded_steps
from ..models.job import Status
from ..models.step import Step
from ..redaction import redact, redact_call, redact_text
from ..why import explain
from ..wording import counted, period
from . import _job_rows as rows
from ._moments import clock, iso
from ._output import Marks, cells, plain, plain_lines, table

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from ..models import Job

__all__ = ["as_json", "text"]

_WIDTH = 100
_BAR = 20


def as_json(job: Any, workers: dict[int, str]) -> dict[str, Any]:
    """Return the values of a job, with those that the list does not read."""
    _add_last_error(job)
    why = explain(job)
    args, kwargs = redact_call(job.args, job.kwargs, job.task_path)
    return {
        **rows.as_json(job, workers),
        "why": {"code": why.code, "text": redact_text(why.text, job.task_path), "cure": why.cure},
        "args": args,
        "kwargs": kwargs,
        "result": redact(job.result, job.task_path),
        "progress": rows.progress_json(job, job.progress),
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
    why = explain(job)
    worker = "" if job.worker is None else f"{workers.get(job.worker, 'gone')} (id {job.worker})"
    return {
        _("Why"): redact_text(why.text, job.task_path),
        _("What helps"): why.cure,
        _("Progress"): _progress(job, marks),
        _("Queue"): f"{job.queue_name}, priority {job.priority}",
        _("Attempts"): f"{job.attempts}{most}{crashes}",
        _("Enqueued"): _time(job.enqueued_at, job.now),
        _("Runs after"): "" if job.is_over or job.status == Status.RUNNING else _time(job.run_after, job.now),
        _("Started"): _time(job.started_at, job.now),
        _("Last attempt"): _time(job.last_attempted_at, job.now) if job.attempts > 1 else "",
        _("Deadline"): _time(job.deadline, job.now) if job.status == Status.RUNNING else "",
        _("Stop asked"): "" if job.is_over else _time(job.cancel_requested_at, job.now),
        _("Ended"): _time(job.finished_at, job.now) + took if job.finished_at else "",
        _("Expires"): "" if job.is_over else _time(job.expires_at, job.now),
        _("Worker"): worker,
        _("Batch"): str(job.batch_id or ""),
        _("After"): ", ".join(map(str, job.parent_ids or ())),
        _("Limited by"): job.limit_key or "",
        _("Group"): job.group_key or "",
        _("Unique key"): job.unique_key or "",
        _("User"): str(job.user_id or ""),
        _("Fingerprint"): job.error_fingerprint,
        _("Arguments"): _json(args) if args else "",
        _("Keywords"): _json(kwargs) if kwargs else "",
        _("Result"): "" if job.result is None else _json(redact(job.result, job.task_path)),
    }


def _progress(job: Job, marks: Marks) -> str:
    step = f"step {job.current_step}" if job.current_step and not job.is_over else ""
    progress = job.progress
    if progress is None:
        return step
    bar = "" if progress.fraction is None else f"[{marks.bar(progress.fraction, _BAR)}] "
    note = redact_text(progress.note, job.task_path)
    told = f"{bar}{rows.amount(progress)} {note}".strip()
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
    waits = "waits" if wakes is None or step["kind"] == Step.Kind.SIGNAL else f"until {clock(wakes)}"
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
