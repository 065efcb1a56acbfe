"""``manage.py pgqueue jobs``: list jobs, or show everything about some of them; ``why`` and ``run-here``.

The ``now`` of a job is the time of the server when the job was read. Values are shown as REDACT says.
"""

from __future__ import annotations

import json
import pdb
from argparse import ArgumentParser, ArgumentTypeError
from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from functools import partial
from traceback import format_exception
from typing import Any

from django.conf import settings
from django.core.management.base import CommandError, OutputWrapper
from django.db.models import CharField, F, Func, QuerySet
from django.db.models.functions import Now
from django.utils import translation

from ... import conf
from ...explanation import why
from ...formatting import counted, date_time, number, period, plain, span
from ...models import Job, Worker
from ...models.job import Status, Step
from ...monitoring.jobs import moment, recorded_steps
from ...postgres.timeout import TimeLimitReached, time_limit
from ...redaction import beginning, redact, redact_call, redact_text
from ...tasks.progress import Progress
from ...worker.one_process import run_job
from .._arguments import at_least, job_id, of_one_database, unknown
from .._job_filters import add_filters, check_names, filters_of
from .._output import bar, facts, plain_lines, print_json, print_table, table, width_of
from .._parser import INTERRUPTED, Subcommand

PATIENCE = 5.0  # seconds that one statement may take
MOST = 1000  # jobs in one list


def _add_jobs(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("job", type=job_id, nargs="*", metavar="ID", help="ids, such as 5 or other:5")
    add_filters(parser, status="default: all")
    add(
        "--limit",
        type=at_least(1),
        default=50,
        metavar="N",
        help=f"at most N jobs, up to {MOST} (default: 50)",
    )
    add("--after", type=at_least(1), metavar="ID", help="go on after this id, the last of the list before")
    add("--quiet", action="store_true", help="print only the ids, one in a line")


def _jobs(options: dict[str, Any], stdout: OutputWrapper) -> None:
    if options["json"] and options["quiet"]:
        raise ArgumentTypeError("--json and --quiet cannot be used together.")
    try:
        (_show if options["job"] else _list)(options, stdout)
    except TimeLimitReached as error:
        raise CommandError(
            f"The database did not answer within {PATIENCE:g} s. Choose fewer jobs: add --status, --queue, "
            "--batch, --key or --worker."
        ) from error


def _show(options: dict[str, Any], stdout: OutputWrapper) -> None:
    alias, ids = of_one_database(options["job"], options["database"])
    if filters_of(options, alias).are_given or options["after"]:
        raise ArgumentTypeError("Give either ids or options that choose jobs, not both.")
    with time_limit(alias, PATIENCE):
        listed = Job.objects.using(alias).select_related("live_progress")
        found = listed.annotate(now=Now()).in_bulk(ids)
        if missing := [pk for pk in ids if pk not in found]:
            raise CommandError(unknown(missing, alias))
        jobs: list[Any] = [found[pk] for pk in ids]
        workers = _worker_names(alias, jobs)
        for job in jobs:  # what the list reads by itself
            last = job.errors[-1] if job.errors else {}
            job.last_class = last.get("class")
            job.last_message = redact_text(str(last.get("message") or ""), job.task_path)
        if options["json"]:
            shown: list[Any] = [_details_json(job, workers) for job in jobs]
        else:
            shown = ["\n".join(_text(job, workers, width_of(stdout))) for job in jobs]
    if options["json"]:
        print_json(stdout, {"database": alias, "jobs": shown, "next": None})
    else:
        stdout.write("\n".join(map(str, ids)) if options["quiet"] else "\n\n".join(shown))


def _list(options: dict[str, Any], stdout: OutputWrapper) -> None:
    alias = options["database"]
    filters = filters_of(options, alias)
    limit = min(MOST, options["limit"])
    chosen = filters.jobs(alias)
    if options["after"]:
        chosen = chosen.filter(pk__lt=options["after"])
    with time_limit(alias, PATIENCE):
        jobs = list(readable(chosen).order_by("-pk")[: limit + 1])
        jobs, more = jobs[:limit], len(jobs) > limit
        workers = _worker_names(alias, jobs)
        if not jobs:
            check_names(filters, alias)
    for job in jobs:
        job.last_message = beginning(job.last_message or "", _READ, job.task_path, _MESSAGE)
    if options["json"]:
        shown = [_row_json(job, workers) for job in jobs]
        print_json(stdout, {"database": alias, "jobs": shown, "next": jobs[-1].pk if more else None})
    elif options["quiet"]:
        stdout.write("".join(f"{job.pk}\n" for job in jobs), ending="")
    else:
        head = ("ID", "Status", "Queue", "Task", "Attempts", "When", "Worker", "About")
        empty = "There is no such job." if filters.are_given else "There is no job."
        print_table(stdout, head, [_row(job, workers) for job in jobs], right={0}, empty=empty)
        if more:
            stdout.write(f"\nThere are more: --after {jobs[-1].pk}")


# ----------------------------------------------------------------------------
# The list.
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


def _worker_names(alias: str, jobs: Sequence[Any]) -> dict[int, str]:
    """Return the names of the workers of some jobs, as far as they still have a row."""
    ids = {job.worker for job in jobs if job.worker is not None}
    workers = Worker.objects.using(alias).filter(pk__in=ids) if ids else ()
    return {worker.pk: str(worker) for worker in workers}


def _row(job: Any, workers: dict[int, str]) -> tuple[str, ...]:
    return (
        str(job.pk),
        job.status,
        job.queue_name,
        job.task_path,
        str(job.attempts) if job.max_attempts is None else f"{job.attempts}/{job.max_attempts}",
        _when(job),
        workers.get(job.worker, "gone") if job.status == Status.RUNNING else "",
        _about(job),
    )


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
        asked = "asked to stop" if job.cancel_requested_at else ""
        return ", ".join(filter(None, (asked, progress_text(job))))
    if job.status in (Status.FAILED, Status.RETRY) and job.last_class:
        return ": ".join(filter(None, (job.last_class.rpartition(".")[2], job.last_message)))
    return redact_text(job.waiting_reason, job.task_path)


def progress_text(job: Any, width: int = 0) -> str:
    """Return how far a job is and its step: "1,204 of 5,000 (24 %) half of it, step rows".

    ``width``: that of a bar before it.
    """
    progress, told = job.progress, ""
    if progress is not None:
        told = f"{number(progress.done)} done"
        if progress.fraction is not None:
            share = int(100 * progress.fraction)
            told = f"{number(progress.done)} of {number(progress.total)} ({share} %)"
            told = f"{bar(progress.fraction, width)} {told}" if width else told
        told = f"{told} {redact_text(progress.note, job.task_path)}".strip()
    step = f"step {job.current_step}" if job.current_step and not job.is_finished else ""
    return ", ".join(filter(None, (told, step)))


def _row_json(job: Any, workers: dict[int, str]) -> dict[str, Any]:
    return {
        "id": job.pk,
        "task": job.task_path,
        **{name: getattr(job, name) for name in _PLAIN},
        "worker_name": workers.get(job.worker) if job.worker is not None else None,
        "reason": redact_text(job.waiting_reason, job.task_path),
        "batch": job.batch_id,
        "step": job.current_step or None,
        "progress": None if job.is_finished else _progress_json(job),
        "fingerprint": job.error_fingerprint or None,
        "error": {"class": job.last_class, "message": job.last_message} if job.last_class else None,
    }


#: The columns that are printed as they are.
_PLAIN = (
    "status", "queue_name", "priority", "attempts", "max_attempts", "duration", "worker", "group_key",
    "limit_key", "unique_key", "enqueued_at", "run_after", "started_at", "last_attempted_at",
    "cancel_requested_at", "finished_at",
)  # fmt: skip


def _progress_json(job: Any) -> dict[str, Any] | None:
    progress: Progress | None = job.progress
    if progress is None:
        return None
    note = redact_text(progress.note, job.task_path)
    return {**progress._asdict(), "note": note, "fraction": progress.fraction}


# ----------------------------------------------------------------------------
# Everything about one job.

_BAR = 20


def _details_json(job: Any, workers: dict[int, str]) -> dict[str, Any]:
    reason = why(job)
    args, kwargs = redact_call(job.args, job.kwargs, job.task_path)
    return {
        **_row_json(job, workers),
        "why": {"code": reason.code, "text": redact_text(reason.text, job.task_path), "fix": reason.fix},
        "args": args,
        "kwargs": kwargs,
        "result": redact(job.result, job.task_path),
        "progress": _progress_json(job),
        **{
            name: getattr(job, name)
            for name in ("timeout", "expires_at", "deadline", "on_lost", "traceparent")
        },
        "crashes": job.crash_count,
        "after": job.parent_ids or [],
        "user": job.user_id,
        "steps": [{**step, "result": redact(step["result"], job.task_path)} for step in recorded_steps(job)],
        "errors": [_redacted(job, error) for error in job.errors],
        "logs": [_redacted_log(job, log) for log in job.logs or []],
    }


def _text(job: Any, workers: dict[int, str], width: int | None) -> Iterator[str]:
    """Yield what a person wants to know about a job, the most important first."""
    yield plain(f"Job {job.pk}: {job.task_path}, {job.status}")
    yield from facts(_facts(job, workers), width)
    if steps := recorded_steps(job):
        yield ""
        shown = table(("Step", "Kind", "Attempt", "Took", "Ended"), [_step_row(step) for step in steps])
        yield from (f"  {line}" for line in shown.splitlines())
    yield from _errors(job)
    yield from _logs(job)


def _facts(job: Any, workers: dict[int, str]) -> dict[str, str]:
    """Return the facts with their labels; those that are empty are not shown."""
    most = "" if job.max_attempts is None else f" of {job.max_attempts}"
    took = "" if job.duration is None else f", took {span(job.duration)}"
    crashes = f", {counted(job.crash_count, 'crash', 'crashes')}" if job.crash_count else ""
    args, kwargs = redact_call(job.args, job.kwargs, job.task_path)
    reason, write = why(job), partial(json.dumps, ensure_ascii=False)
    is_running, is_over = job.status == Status.RUNNING, job.is_finished
    times = {
        "Enqueued": job.enqueued_at,
        "Runs after": None if is_over or is_running else job.run_after,
        "Started": job.started_at,
        "Last attempt": job.last_attempted_at if job.attempts > 1 else None,
        "Deadline": job.deadline if is_running else None,
        "Stop asked": None if is_over else job.cancel_requested_at,
        "Ended": job.finished_at,
        "Expires": None if is_over else job.expires_at,
    }
    shown_times = {label: _time(time, job.now) for label, time in times.items() if time is not None}
    if "Ended" in shown_times:
        shown_times["Ended"] += took
    return {
        "Why": redact_text(reason.text, job.task_path),
        "What helps": reason.fix,
        "Progress": progress_text(job, _BAR),
        "Queue": f"{job.queue_name}, priority {job.priority}",
        "Attempts": f"{job.attempts}{most}{crashes}",
        **shown_times,
        "Worker": "" if job.worker is None else f"{workers.get(job.worker, 'gone')} (id {job.worker})",
        "Batch": str(job.batch_id or ""),
        "After": ", ".join(map(str, job.parent_ids or ())),
        "Limit key": job.limit_key or "",
        "Group": job.group_key or "",
        "Unique key": job.unique_key or "",
        "User": str(job.user_id or ""),
        "Fingerprint": job.error_fingerprint,
        "Arguments": write(args) if args else "",
        "Keywords": write(kwargs) if kwargs else "",
        "Result": "" if job.result is None else write(redact(job.result, job.task_path)),
    }


def _errors(job: Job) -> Iterator[str]:
    """Yield a line for each error that is kept, and the traceback of the last one."""
    if not job.errors:
        return
    yield ""
    yield f"  {counted(len(job.errors), 'error')}, the last one with its traceback:"
    for error in job.errors:
        name = str(error.get("class", "")).removeprefix("builtins.")
        where = f", step {error['step']}" if error.get("step") else ""
        at = moment(error.get("finished_at"))
        when = f", {date_time(at)}" if at else ""
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
    line = "{at} {level} {logger}: {message}"
    texts = (line.format_map(defaultdict(str, each)) for each in last.get("lines", []))
    whole = redact_text("\n".join(texts), job.task_path)
    yield from (f"    {each}" for each in plain_lines(whole))
    if left_out := last.get("left_out"):
        yield f"    ({counted(left_out, 'line')} left out)"


def _step_row(step: dict[str, Any]) -> tuple[str, ...]:
    ended, wakes, seconds = step["finished_at"], step["wake_at"], step["seconds"]
    waits = "waits" if wakes is None or step["kind"] == Step.Kind.EVENT else f"until {date_time(wakes)}"
    return (
        str(step["name"] or ""),
        str(step["kind"] or ""),
        str(step["attempt"] or ""),
        "" if seconds is None else span(seconds),
        date_time(ended) if ended else waits,
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


def _time(time: datetime, now: datetime) -> str:
    ahead = time - now
    away = f"in {period(ahead)}" if ahead > timedelta() else f"{period(-ahead)} ago"
    return f"{date_time(time)} ({away})"


# ----------------------------------------------------------------------------
# ``why``: why a job does not run, or what has become of it.


def _add_why(parser: ArgumentParser) -> None:
    parser.add_argument("job", type=job_id, metavar="ID", help="the id of the job, such as 5 or other:5")


def _why(options: dict[str, Any], stdout: OutputWrapper) -> None:
    """Print the reason, and what helps. That there is no such job is an error."""
    alias, pk = options["job"]
    reason = why(pk, using=alias or options["database"])
    if options["json"]:
        names = ("job_id", "database", "code", "text", "fix", "facts")
        print_json(stdout, {name: getattr(reason, name) for name in names})
    elif reason.code != "unknown":
        stdout.write(plain(f"Job {pk} ({reason.facts['task_path']}): {reason.text}"))
        if reason.fix:
            stdout.write(plain(reason.fix))
    if reason.code == "unknown":
        raise CommandError(reason.text)


# ----------------------------------------------------------------------------
# ``run-here``: run one waiting job in this process, for a debugger.


def _add_run_here(parser: ArgumentParser) -> None:
    parser.add_argument("job", type=job_id, metavar="ID", help="the id of the job, such as 5 or other:5")
    parser.add_argument("--pdb", action="store_true", help="if the task raises, start pdb where it did")


def run_here(options: dict[str, Any], stdout: OutputWrapper) -> None:
    """Run a waiting job, and show what came of it."""
    alias, pk = options["job"]
    with translation.override(settings.LANGUAGE_CODE):  # as in a worker; the output is in English
        result = run_job(pk, alias or options["database"])
    row, outcome, failure = result.row, result.outcome, result.failure
    if failure is not None:
        trace = redact_text("".join(format_exception(failure.error)), row.task_path)
        stdout.write("\n".join(plain_lines(trace)))
    what = f"Job {row.id} ({row.task_path}), attempt {row.attempts}"
    if outcome.kind == "done":
        shown = json.dumps(redact(json.loads(outcome.result or "null"), row.task_path), ensure_ascii=False)
        stdout.write(plain(f"{what}: done in {result.ran:.3f} s. Result: {shown}"))
        return
    if failure is not None and options["pdb"]:
        pdb.post_mortem(failure.error.__traceback__)
    then = {"retry": "it will be tried again", "release": "it waits again"}.get(outcome.kind, outcome.kind)
    reason = redact_text(outcome.reason or "", row.task_path)
    is_cut_short = failure is not None and isinstance(failure.error, KeyboardInterrupt)
    raise CommandError(
        plain(f"{what}: {then}{f' ({reason})' if reason else ''}."),
        returncode=INTERRUPTED if is_cut_short else 1,
    )


SUBCOMMANDS = [
    Subcommand("jobs", "List jobs, newest first, or show everything about the jobs with these ids",
               _add_jobs, _jobs),
    Subcommand("why", "Say why a job does not run, or what has become of it", _add_why, _why),
    Subcommand("run-here", "Run one waiting job here and now, so that a debugger can follow it",
               _add_run_here, run_here, has_json=False),
]  # fmt: skip
