"""``manage.py pgqueue jobs``: list jobs, or show everything about some of them; ``why`` and ``run-here``.

The ``now`` of a job is the time of the server when the job was read. Values are shown as REDACT says.
"""

from __future__ import annotations

import json
import pdb
from argparse import ArgumentTypeError
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import fields
from datetime import datetime, timedelta
from functools import partial
from heapq import merge
from itertools import chain
from time import monotonic
from traceback import format_exception
from typing import Any, TypeAlias

from django.conf import settings
from django.core.management.base import CommandError
from django.db import DEFAULT_DB_ALIAS
from django.db.models import Max, Min, QuerySet, TextField
from django.db.models.fields.json import KeyTextTransform, KeyTransform
from django.db.models.functions import Cast, Left, Now
from django.utils import translation

from ... import conf
from ...explanation import why
from ...formatting import counted, cut, date_time, get_logger, how_soon, number, percent, period, plain, span
from ...models import Job, Worker
from ...models.job import Status, Step
from ...monitoring.jobs import moment, recorded_steps
from ...postgres.ask import SECONDS, Answers
from ...postgres.timeout import TimeLimitReached, time_limit
from ...redaction import beginning, redact, redact_call, redact_text
from ...tasks.links import public_id
from ...tasks.progress import Progress
from ...worker.one_process import run_job
from .._arguments import at_least, by_database, job_id, positions, seconds
from .._conditions import on_shards, reachable
from .._job_filters import Filters, add_filters, check_names, filters_of, with_ids
from .._output import Block, Columns, Output, Table, bar, plain_lines
from .._parser import INTERRUPTED, argument, subcommand

logger = get_logger(__name__)

PATIENCE = 5.0  # seconds that one statement may take
MOST = 1000  # jobs in one list

_Page: TypeAlias = tuple[list[Any], int | None]
"""Jobs, and the id above which all jobs were read, if the time was not enough to read all."""

_ID = argument("job", type=job_id, metavar="ID", help="the id of the job, such as 5 or other:5")


@subcommand(
    "jobs",
    "List jobs, newest first, or show everything about the jobs with these ids",
    partial(add_filters, status="default: all"),
    argument("--limit", type=at_least(1), default=50, metavar="N",
             help=f"at most N jobs, up to {MOST} (default: 50)"),
    argument("--after", type=positions, metavar="ID",
             help="go on after this id, the last of the list before; with shards, after one of each"),
    argument("--quiet", action="store_true", help="print only the ids, one in a line"),
    shards="all",
)  # fmt: skip
def _jobs(options: dict[str, Any]) -> Output:
    if options["json"] and options["quiet"]:
        raise ArgumentTypeError("--json and --quiet cannot be used together.")
    options["after"] = positions(options["after"] or {})
    try:
        return (_show if options["job"] else _list)(options)
    except TimeLimitReached as error:
        raise CommandError(
            f"The database did not answer within {PATIENCE:g} s. Choose fewer jobs: add --status, --queue, "
            "--batch, --key or --worker."
        ) from error


def _show(options: dict[str, Any]) -> Output:
    """Show everything about the jobs with these ids, which may be in several databases."""
    ids, home = by_database(options["job"], options["database"]), options["database"]
    filters_of(options, home if home in ids else next(iter(ids)))
    read = [_details(alias, numbers) for alias, numbers in ids.items()]
    if options["quiet"]:
        named = [(pk, alias if len(ids) > 1 else None) for alias, numbers in ids.items() for pk in numbers]
        return Output([public_id(pk, alias) for pk, alias in named])
    found = [pair for pairs in read for pair in pairs]
    texts = [[*[""][:place], *_text(job, each)] for place, (job, each) in enumerate(found)]
    shown = [each if len(ids) == 1 else {"shard": job._state.db, **each} for job, each in found]
    document = {"database": next(iter(ids)), "jobs": shown, "next": None}
    if len(ids) > 1:
        del document["database"]
    return Output(chain(*texts), document)


def _details(alias: str, ids: list[int]) -> list[tuple[Any, dict[str, Any]]]:
    """Return the jobs, each with its details."""
    with reachable(alias), time_limit(alias, PATIENCE):
        listed = Job.objects.using(alias).select_related("live_progress").annotate(now=Now())
        jobs = with_ids(listed, ids)
        _add_worker_names(alias, jobs)
        return [(job, _details_json(job)) for job in jobs]


def _read(options: dict[str, Any], alias: str, limit: int, patience: float) -> _Page:
    """Return the newest jobs of a database, one more than wanted if there are more."""
    filters = filters_of(options, alias)
    jobs, lowest = _newest(filters, alias, options["after"].get(alias), limit + 1, patience)
    with time_limit(alias, PATIENCE):
        _add_worker_names(alias, jobs)
        if not (jobs or lowest):
            check_names(filters, alias)
    for job in jobs:
        job.last_message = beginning(job.last_message or "", _READ, job.task_path, _MESSAGE)
        _add_arguments(job)
    return jobs, lowest


def _pages(options: dict[str, Any], limit: int) -> Answers[_Page]:
    """Read the jobs of a database, or of all shards."""
    aliases, after = options["shards"], options["after"]
    if len(aliases) == 1:
        if set(after) - {*aliases, DEFAULT_DB_ALIAS}:
            raise ArgumentTypeError(f"--after names another database than {aliases[0]!r}.")
        options["after"] = dict.fromkeys(aliases if after else [], *after.values())
        return Answers({aliases[0]: _read(options, aliases[0], limit, PATIENCE)}, {})
    return on_shards(aliases, lambda alias: _read(options, alias, limit, SECONDS / 2))


def _list(options: dict[str, Any]) -> Output:
    """List the jobs of a database, or of all shards, newest first. Each shard has a position of its own, from
    which it goes on: the last of its jobs that was shown.
    """
    aliases, limit = options["shards"], min(MOST, options["limit"])
    is_all, answers = len(aliases) > 1, _pages(options, limit)
    read = [jobs for jobs, _lowest in answers.given.values()]
    found = [*merge(*read, key=lambda job: job.enqueued_at, reverse=True)]
    lowest = {alias: each for alias, (_jobs, each) in answers.given.items() if each is not None}
    jobs, is_cut = found[:limit], bool(lowest)
    after = options["after"] | {job._state.db: job.pk for job in jobs}
    if len(found) <= limit:  # all that were found are shown
        after |= lowest
    position: Any = None
    if len(found) > limit or is_cut:
        ids = [public_id(pk, alias) for alias, pk in after.items()]
        position = ",".join(ids) if is_all else after[aliases[0]]
    shown = [{**_row_json(job), "args": job.shown_args, "kwargs": job.shown_kwargs} for job in jobs]
    document = {"database": aliases[0], "jobs": shown, "next": position, "timed_out": is_cut}
    if is_all:
        shown = [{"shard": job._state.db, **row} for job, row in zip(jobs, shown, strict=True)]
        document = {"jobs": shown, "next": position, "timed_out": is_cut, "unanswered": answers.failed}
    chooses = any(options[each.name] for each in fields(Filters))
    empty = "There is no such job." if chooses else "There is no job."
    rest = f"There are more: --after {position}"
    if is_cut:
        empty = "No such job was found."
        rest = f"{PATIENCE:g} s were not enough to search the jobs below the id {position}."
        rest = f"{rest} To go on: --after {position}"
    if options["quiet"]:
        if is_cut:
            logger.warning(rest)
        return Output([_id(job) if is_all else str(job.pk) for job in jobs], error=str(answers))
    table = Table.of({**_TABLE, "ID": _id} if is_all else _TABLE, jobs, right={0}, empty=empty)
    return Output([table, "", rest] if position else [table], document, error=str(answers))


def _id(job: Any) -> str:
    return public_id(job.pk, job._state.db)


def _newest(filters: Filters, alias: str, after: int | None, most: int, patience: float) -> _Page:
    """Return the newest of these jobs. They are read in ranges of ids, so that what no index finds does not
    take longer than ``patience`` either: then the id above which all jobs were read is returned, too.
    """
    ends, size = monotonic() + patience, _FIRST_RANGE
    found: list[Any] = []
    with time_limit(alias, patience):
        chosen = readable(filters.indexed_jobs(alias)).annotate(**_CALL)
        least, newest = Job.objects.using(alias).aggregate(least=Min("pk"), most=Max("pk")).values()
    upper = (newest or 0) + 1 if after is None else min(after, (newest or 0) + 1)
    while upper > (least or 0) and len(found) < most:
        began, lower = monotonic(), upper - size
        try:
            with time_limit(alias, max(0.0, ends - began)):
                some = chosen.filter(pk__gte=lower, pk__lt=upper).order_by("-pk")
                found += some[: most - len(found)]
        except TimeLimitReached:
            if size == _FIRST_RANGE:
                raise
            return found, upper
        upper, size = lower, size * (2 if monotonic() - began < _QUICK else 1)
    return found, None


_FIRST_RANGE = 1_000  # ids
_QUICK = 0.3  # seconds, in which a statement has read so few rows that the next one may read twice as many
_MESSAGE = 300
_READ = 4_000  # characters, if patterns are to find something in them
_CALL = {f"{name}_text": Left(Cast(name, TextField()), _READ) for name in ("args", "kwargs")}
_ARGUMENTS = 80  # characters of the arguments in the list


def _add_arguments(job: Any) -> None:
    """Add the arguments as they may be shown, and in a text. They are None if they are too large for it."""
    job.shown_args, job.shown_kwargs, job.call = None, None, "…"
    if max(len(job.args_text), len(job.kwargs_text)) < _READ:
        args, kwargs = json.loads(job.args_text), json.loads(job.kwargs_text)
        job.shown_args, job.shown_kwargs = redact_call(args, kwargs, job.task_path)
        named = [f"{name}={_compact(value)}" for name, value in job.shown_kwargs.items()]
        job.call = cut(", ".join([*map(_compact, job.shown_args), *named]), _ARGUMENTS)


_compact = partial(json.dumps, ensure_ascii=False)


def readable(jobs: QuerySet[Job]) -> QuerySet[Any]:
    """Let jobs be read with what a row shows, and nothing large. ``now`` is the time of the server."""
    most = _MESSAGE if conf.current().redact.are_names else _READ
    last = {
        f"last_{name}": Left(KeyTextTransform(name, KeyTransform("-1", "errors")), most)
        for name in ("class", "message")
    }
    large = ("args", "kwargs", "metadata", "context", "parent_ids", "result", "steps", "errors", "logs")
    rows: QuerySet[Any] = jobs.select_related("live_progress").defer(*large).annotate(**last, now=Now())
    return rows


def _add_worker_names(alias: str, jobs: Sequence[Any]) -> None:
    """Add the names of their workers to some jobs, as far as these still have a row."""
    ids = {job.worker for job in jobs if job.worker is not None}
    workers = Worker.objects.using(alias).in_bulk(ids)
    for job in jobs:
        job.worker_name = str(workers[job.worker]) if job.worker in workers else None


def _when(job: Any) -> str:
    now = job.now
    if job.finished_at is not None:
        return f"{period(now - job.finished_at)} ago"
    if job.status == Status.RUNNING:
        return f"for {period(now - (job.last_attempted_at or now))}"
    if job.status == Status.BLOCKED:
        return f"since {period(now - job.enqueued_at)}"
    return how_soon(job.run_after - now)


def _about(job: Any) -> str:
    """Return the one fact that says most about a job."""
    if job.status == Status.RUNNING:
        asked = "asked to stop" if job.cancel_requested_at else ""
        return ", ".join(filter(None, (asked, progress_text(job))))
    if job.status in (Status.FAILED, Status.RETRY) and job.last_class:
        return ": ".join(filter(None, (job.last_class.rpartition(".")[2], job.last_message)))
    return redact_text(job.waiting_reason, job.task_path)


_TABLE: Columns = {
    "ID": lambda job: str(job.pk),
    "Status": lambda job: job.status,
    "When": _when,
    "Task": lambda job: job.task_path,
    "Queue": lambda job: job.queue_name,
    "Arguments": lambda job: job.call,
    "Attempts": lambda job: (
        str(job.attempts) if job.max_attempts is None else f"{job.attempts}/{job.max_attempts}"
    ),
    "Worker": lambda job: job.worker_name or "gone" if job.status == Status.RUNNING else "",
    "About": _about,
}


def progress_text(job: Any, width: int = 0) -> str:
    """Return how far a job is and its step: "1,204 of 5,000 (24%) half, step rows". ``width``: of a bar."""
    progress, text = job.progress, ""
    if progress is not None:
        text = f"{number(progress.done)} done"
        if progress.fraction is not None:
            share = percent(int(100 * progress.fraction) / 100)
            text = f"{number(progress.done)} of {number(progress.total)} ({share})"
            text = f"{bar(progress.fraction, width)} {text}" if width else text
        text = f"{text} {redact_text(progress.note, job.task_path)}".strip()
    step = f"step {job.current_step}" if job.current_step and not job.is_finished else ""
    return ", ".join(filter(None, (text, step)))


def _row_json(job: Any) -> dict[str, Any]:
    return {
        "id": job.pk,
        "task": job.task_path,
        **{name: getattr(job, name) for name in _PLAIN},
        "reason": redact_text(job.waiting_reason, job.task_path),
        "batch": job.batch_id,
        "step": job.current_step or None,
        "progress": None if job.is_finished else _progress_json(job),
        "fingerprint": job.error_fingerprint or None,
        "error": {"class": job.last_class, "message": job.last_message} if job.last_class else None,
    }


#: The columns that are printed as they are.
_PLAIN = (
    "status", "queue_name", "priority", "attempts", "max_attempts", "duration", "worker", "worker_name",
    "group_key", "limit_key", "unique_key", "enqueued_at", "run_after", "started_at", "last_attempted_at",
    "cancel_requested_at", "finished_at",
)  # fmt: skip


def _progress_json(job: Any) -> dict[str, Any] | None:
    progress: Progress | None = job.progress
    if progress is None:
        return None
    note = redact_text(progress.note, job.task_path)
    return {**progress._asdict(), "note": note, "fraction": progress.fraction}


_BAR = 20


def _details_json(job: Any) -> dict[str, Any]:
    path, reason, errors = job.task_path, why(job), [_redacted(job, error) for error in job.errors]
    last = errors[-1] if errors else {}
    job.last_class, job.last_message = last.get("class"), str(last.get("message") or "")
    args, kwargs = redact_call(job.args, job.kwargs, path)
    more = ("timeout", "expires_at", "deadline", "on_lost", "traceparent")
    return {
        **_row_json(job),
        "why": {"code": reason.code, "text": redact_text(reason.text, path), "fix": reason.fix},
        "args": args,
        "kwargs": kwargs,
        "result": redact(job.result, path),
        "progress": _progress_json(job),
        **{name: getattr(job, name) for name in more},
        "crashes": job.crash_count,
        "after": job.parent_ids or [],
        "user": job.user_id,
        "steps": [{**step, "result": redact(step["result"], path)} for step in recorded_steps(job)],
        "errors": errors,
        "logs": [_redacted_log(job, log) for log in job.logs or []],
    }


def _text(job: Any, shown: dict[str, Any]) -> Iterator[Block]:
    """Yield what a person wants to know about a job, the most important first. ``shown``: its details."""
    yield f"Job {job.pk}: {job.task_path}, {job.status}"
    yield _facts(job, shown)
    if shown["steps"]:
        yield ""
        yield from (f"  {line}" for line in Table.of(_STEPS, shown["steps"]).lines())
    if errors := shown["errors"]:
        yield ""
        yield f"  {counted(len(errors), 'error')}, the last one with its traceback:"
        for error in errors:
            name = str(error.get("class", "")).removeprefix("builtins.")
            where = f", step {error['step']}" if error.get("step") else ""
            at = moment(error.get("finished_at"))
            when = f", {date_time(at)}" if at else ""
            yield f"  attempt {error.get('attempt', '?')}{when}{where}: {name}: {error.get('message', '')}"
        yield from (f"    {line}" for line in plain_lines(str(errors[-1].get("traceback", ""))))
    if shown["logs"]:
        last, line = shown["logs"][-1], "{at} {level} {logger}: {message}"
        yield ""
        yield f"  Log of attempt {last.get('attempt', '?')}:"
        for each in last.get("lines", []):
            yield from (f"    {text}" for text in plain_lines(line.format_map(defaultdict(str, each))))
        if left_out := last.get("left_out"):
            yield f"    ({counted(left_out, 'line')} left out)"


def _facts(job: Any, shown: dict[str, Any]) -> dict[str, str | None]:
    """Return the facts with their labels; empty ones are not shown."""
    most = "" if job.max_attempts is None else f" of {job.max_attempts}"
    crashes = f", {counted(job.crash_count, 'crash', 'crashes')}" if job.crash_count else ""
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
    if is_over and job.duration is not None:
        shown_times["Ended"] += f", took {span(job.duration)}"
    return {
        "Why": shown["why"]["text"],
        "What helps": shown["why"]["fix"],
        "Progress": progress_text(job, _BAR),
        "Queue": f"{job.queue_name}, priority {job.priority}",
        "Attempts": f"{job.attempts}{most}{crashes}",
        **shown_times,
        "Worker": None if job.worker is None else f"{job.worker_name or 'gone'} (id {job.worker})",
        "Batch": job.batch_id and str(job.batch_id),
        "After": ", ".join(map(str, shown["after"])),
        "Limit key": job.limit_key,
        "Group": job.group_key,
        "Unique key": job.unique_key,
        "User": str(job.user_id or ""),
        "Fingerprint": job.error_fingerprint,
        "Arguments": _compact(shown["args"]) if job.args else "",
        "Keywords": _compact(shown["kwargs"]) if job.kwargs else "",
        "Result": "" if job.result is None else _compact(shown["result"]),
    }


def _step_end(step: dict[str, Any]) -> str:
    if step["finished_at"]:
        return date_time(step["finished_at"])
    is_timed = step["wake_at"] is not None and step["kind"] != Step.Kind.EVENT
    return f"until {date_time(step['wake_at'])}" if is_timed else "waits"


_STEPS: Columns = {
    "Step": lambda step: str(step["name"] or ""),
    "Kind": lambda step: str(step["kind"] or ""),
    "Attempt": lambda step: str(step["attempt"] or ""),
    "Took": lambda step: "" if step["seconds"] is None else span(step["seconds"]),
    "Ended": _step_end,
}


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


@subcommand("why", "Say why a job does not run, or what has become of it", _ID)
def _why(options: dict[str, Any]) -> Output:
    """Return the reason, and what helps. That there is no such job is an error."""
    _, pk = options["job"]
    reason = why(pk, using=options["database"])
    names = ("job_id", "database", "code", "text", "fix", "facts")
    document = {name: getattr(reason, name) for name in names}
    if reason.code == "unknown":
        return Output((), document, error=reason.text)
    fix = [reason.fix] if reason.fix else []
    return Output([f"Job {pk} ({reason.facts['task_path']}): {reason.text}", *fix], document)


@subcommand(
    "stack",
    "Show what the task of a running job does now, as a traceback without values",
    _ID,
    argument("--wait", type=seconds(), default=5.0, metavar="DURATION",
             help="for how long to wait for its worker (default: 5s)"),
)  # fmt: skip
def _stack(options: dict[str, Any]) -> Output:
    """Return the stack. That the job does not run, or that its worker does not answer, is an error."""
    _, pk = options["job"]
    job = Job.objects.using(options["database"]).filter(pk=pk).first()
    if job is None:
        return Output(error=f"There is no job {pk}.")
    try:
        stack = redact_text(job.stack(options["wait"]), job.task_path)
    except (ValueError, TimeoutError) as error:
        return Output(error=f"{error} See: manage.py pgqueue why {pk}")
    document = {"job_id": pk, "task_path": job.task_path, "stack": stack}
    return Output([*plain_lines(stack)] or [f"Job {pk} is about to begin, or to end."], document)


@subcommand(
    "run-here",
    "Run one waiting job here and now, so that a debugger can follow it",
    _ID,
    argument("--pdb", action="store_true", help="if the task raises, start pdb where it did"),
    has_json=False,
)
def run_here(options: dict[str, Any]) -> Output:
    """Run a waiting job, and show what came of it."""
    _, pk = options["job"]
    with translation.override(settings.LANGUAGE_CODE):  # as in a worker; the output is in English
        result = run_job(pk, options["database"])
    row, outcome, error = result.row, result.outcome, result.error
    what = f"Job {row.id} ({row.task_path}), attempt {row.attempts}"
    if outcome.kind == "done":
        shown = json.dumps(redact(json.loads(outcome.result or "null"), row.task_path), ensure_ascii=False)
        return Output([f"{what}: done in {span(result.ran)}. Result: {shown}"])
    then = {"retry": "it will be tried again", "release": "it waits again"}.get(outcome.kind, outcome.kind)
    reason = redact_text(outcome.reason or "", row.task_path)
    text = plain(f"{what}: {then}{f' ({reason})' if reason else ''}.")
    if error is None:
        return Output(error=text)

    def trace() -> Iterator[str]:
        yield from plain_lines(redact_text("".join(format_exception(error)), row.task_path))
        if options["pdb"]:
            pdb.post_mortem(error.__traceback__)

    return Output(trace(), error=text, code=INTERRUPTED if isinstance(error, KeyboardInterrupt) else 1)
