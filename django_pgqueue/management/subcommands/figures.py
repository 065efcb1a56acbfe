"""``manage.py pgqueue status``, ``stats``, ``health``, ``queues``, ``limits`` and ``failures``.

The figures are those of the admin and of the metrics. Each subcommand prints them as text or as JSON.
"""

from __future__ import annotations

import math
from argparse import ArgumentParser
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from shlex import quote
from typing import Any

from django.core.management.base import CommandError, OutputWrapper

from ... import conf
from ...formatting import age, date_time, local, number, period, plain, throughput
from ...models import Limit, Queue
from ...monitoring import health as monitoring
from ...monitoring.failures import GroupFigures, group, groups, parts
from ...monitoring.limits import LimitFigures, limit_figures, numbers_text, origin, rate_text
from ...monitoring.queues import Depth, QueueFigures, capped, depths, queue_figures
from ...monitoring.spans import (
    SHARES,
    Figures,
    TimeSpan,
    breakdown,
    per_second,
    percentile_text,
    rates,
    series,
)
from ...monitoring.workers import Crew, Vital
from ...postgres.timeout import time_limit, within
from .._arguments import at_least, seconds, span
from .._conditions import warn_of_unknown_queues
from .._output import plain_lines, print_facts, print_json, print_table
from .._parser import Subcommand

DEPTH_HEAD = ("Ready", "Scheduled", "Retrying", "Blocked", "Running")
STATS_TIMEOUT = 10.0  # seconds that one statement of ``stats`` may take


def depth_counts(depth: Depth) -> list[str]:
    """Return how many jobs are ready, scheduled, retrying, blocked and running."""
    return [capped(getattr(depth, name.lower())) for name in DEPTH_HEAD]


def oldest_text(depth: Depth) -> str:
    """Return how long the oldest ready job has been due."""
    return age(depth.oldest_ready) if depth.ready else "-"


def rate_of_jobs(per_second: float | None) -> str:
    """Return how fast jobs end, if any do."""
    return throughput(per_second) if per_second else "-"


def _queue_text(depth: Depth) -> str:
    return f"{depth.queue_name} (paused)" if depth.is_paused else depth.queue_name


def _depth_json(depth: Depth, crew: Crew | None) -> dict[str, Any]:
    return {**asdict(depth), "workers": crew.serving(depth.queue_name) if crew else 0}


def _print_depths(
    stdout: OutputWrapper, found: Sequence[Depth], crew: Crew, ran: Mapping[str, float] | None = None
) -> None:
    """Print the table of queues, each with the number of workers that claim its jobs, and its rate."""
    head = ["Queue", *DEPTH_HEAD, "Oldest", "Workers", "Rate"]
    rows = []
    for depth in found:
        name = depth.queue_name
        workers, rate = str(crew.serving(name)), rate_of_jobs((ran or {}).get(name))
        rows.append([_queue_text(depth), *depth_counts(depth), oldest_text(depth), workers, rate])
    if ran is None:
        head, rows = head[:-1], [row[:-1] for row in rows]
    print_table(stdout, head, rows, right=range(1, len(head)), empty="No queue has live jobs.")


def _state_json(alias: str, found: monitoring.Health) -> dict[str, Any]:
    problems = [{**asdict(problem), "is_minor": problem.is_minor} for problem in found.problems]
    return {
        "database": alias,
        "healthy": found.is_working,
        "summary": found.headline,
        "problems": problems,
    }


# ----------------------------------------------------------------------------
# ``status``: is all well, what waits, and what to type next.


def _status(options: dict[str, Any], stdout: OutputWrapper) -> None:
    """Print it, and fail if ``health`` would."""
    alias = options["database"]
    state = monitoring.read(alias)
    found, ran = monitoring.judge(state), within(alias, monitoring.PATIENCE, lambda: rates(alias)) or {}
    waiting, crew, commands = [*(state.depths or {}).values()], state.crew, dict(_next_commands(state))
    if options["json"]:
        document = {
            **_state_json(alias, found),
            "workers": crew.count(Vital.RUNNING) if crew else None,
            "queues": [
                {**_depth_json(depth, crew), "per_second": round(ran.get(depth.queue_name, 0.0), 6)}
                for depth in waiting
            ],
            "next": [{"command": command, "text": text} for command, text in commands.items()],
        }
        print_json(stdout, document)
    else:
        stdout.write(plain(found.headline))
        for problem in found.problems:
            stdout.write(plain(f"- {problem}"))
            stdout.write(plain(f"  {problem.fix}"))
        stdout.write("")
        if crew and state.depths is not None:
            _print_depths(stdout, waiting, crew, ran)
        stdout.write("\nNext:")
        room = max(map(len, commands))
        for command, text in commands.items():
            stdout.write(plain(f"  {command:<{room}}  {text}"))
    if not found.is_working:
        raise CommandError(plain(found.headline))


def _next_commands(state: monitoring.QueueState) -> Iterator[tuple[str, str]]:
    """Yield the commands that this state suggests, and what they show."""
    database = "" if state.alias == "default" else f" --database {quote(state.alias)}"
    waiting = (state.depths or {}).values()
    suggested = {
        "failures --span 1h": (state.failed[0], "what has failed, by error"),
        "retry --status failed --since 1h --dry-run": (state.failed[0], "how many jobs would run again"),
        "pauses": (state.pauses, "who has paused what, and why"),
        "limits": (any(depth.blocked for depth in waiting), "what runs and waits under each limit"),
        "jobs --status running": (any(depth.running for depth in waiting), "what runs now"),
        "why ID": (any(depth.ready or depth.blocked for depth in waiting), "why a job does not run"),
        "tasks": (not waiting, "the tasks that can be enqueued"),
        "top": (True, "watch the queue"),
    }
    for command, (is_useful, text) in suggested.items():
        if is_useful:
            yield f"manage.py pgqueue {command}{database}", text
    yield "manage.py pgqueue --help", "all subcommands"


# ----------------------------------------------------------------------------
# ``stats``: what waits in each queue, and what ran.


def _add_stats(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("--span", type=span, default="1h", metavar="SPAN", help="1h, 24h, 7d or 30d back (default: 1h)")
    add("--by", choices=["queue", "task", "time"], default="task", help="one row for each of these")
    add("--queue", default="", metavar="NAME", help="only this queue")
    add("--task", default="", metavar="PATH", help="only what ran of this task")


def _stats(options: dict[str, Any], stdout: OutputWrapper) -> None:
    alias, back, by = options["database"], options["span"], options["by"]
    which = {"queue": options["queue"], "task": options["task"]}
    warn_of_unknown_queues(alias, "--queue", [*filter(None, [which["queue"]])])
    with time_limit(alias, STATS_TIMEOUT):
        crew = Crew(alias)
        live = [each for each in depths(alias).values() if which["queue"] in ("", each.queue_name)]
        ran = series(alias, back, **which) if by == "time" else breakdown(alias, back, by, **which)
    state = monitoring.verdict(alias)
    if options["json"]:
        document = {
            **_state_json(alias, state),
            "queues": [_depth_json(depth, crew) for depth in live],
            "span": back.name,
            "ran": [_figures_json(row, by) for row in ran],
        }
        print_json(stdout, document)
        return
    stdout.write(f"{plain(state.line)}\n\n")
    _print_depths(stdout, live, crew)
    stdout.write("")
    head = [by.capitalize(), "Done", "Failed", "Retried", "Cancelled"]
    head += [f"{what} {name}" for what in ("Waited", "Ran") for name in _PERCENTS]
    rows = [_figures_row(row, by) for row in ran] if any(row.attempts for row in ran) else []
    print_table(stdout, head, rows, right=range(1, 11), empty=f"Nothing ran in the last {back.name}.")


_PERCENTS = {f"p{round(share * 100)}": share for share in SHARES}
_NAMES = {"queue": "queue_name", "task": "task_path"}
_COUNTS = ("done", "failed", "retried", "cancelled")


def _figures_row(row: Figures, by: str) -> list[str]:
    histograms = (row.wait_histogram, row.run_histogram)
    times = [percentile_text(histogram, share) or "-" for histogram in histograms for share in SHARES]
    name = f"{local(row.start):%Y-%m-%d %H:%M}" if by == "time" else getattr(row, _NAMES[by])
    return [name, *(number(getattr(row, count)) for count in _COUNTS), *times]


def _figures_json(row: Figures, by: str) -> dict[str, Any]:
    """Return the values of a row. A percentile is None without attempts and above the last class."""

    def finite(found: float | None) -> float | None:
        return None if found is None or math.isinf(found) else round(found, 6)

    return {
        by: row.start if by == "time" else getattr(row, _NAMES[by]),
        **{name: getattr(row, name) for name in _COUNTS},
        "waited": {name: finite(row.waited(share)) for name, share in _PERCENTS.items()},
        "ran": {name: finite(row.ran(share)) for name, share in _PERCENTS.items()},
    }


# ----------------------------------------------------------------------------
# ``health``: one line and an exit code, for probes and scripts.


def _add_health(parser: ArgumentParser) -> None:
    """Add which queues, and thresholds that replace those of ``HEALTH``."""
    add = parser.add_argument
    add("--queue", action="append", default=[], metavar="NAME", help="only this queue; may be repeated")
    add("--age", type=seconds(), metavar="DURATION", help="how long the oldest ready job may wait")
    add("--depth", type=at_least(0), metavar="N", help="how many jobs may be ready in a queue")
    add("--workers", type=at_least(0), metavar="N", help="how many workers must serve a queue")


def _health(options: dict[str, Any], stdout: OutputWrapper) -> None:
    """Print the line, and fail if there is a problem."""
    given = {name: options[name] for name in ("age", "depth", "workers")}
    queues = [options["queue"]] if isinstance(options["queue"], str) else options["queue"]
    found = monitoring.health(options["database"], queues, **given)
    if options["json"]:
        columns = asdict(found)
        del columns["per_second"]  # which is not read for this
        print_json(stdout, {"healthy": found.is_healthy, **columns})
    elif found.is_healthy:
        stdout.write(plain(found.probe_line))
    if not found.is_healthy:
        raise CommandError(plain(found.probe_line))


# ----------------------------------------------------------------------------
# ``queues``: the queues, with their jobs and their settings.


def _add_queues(parser: ArgumentParser) -> None:
    parser.add_argument("--queue", default="", metavar="NAME", help="only this queue")


def _queues(options: dict[str, Any], stdout: OutputWrapper) -> None:
    alias, queue = options["database"], options["queue"]
    warn_of_unknown_queues(alias, "--queue", [queue] if queue else [])
    found, is_slow = queue_figures(alias)
    if is_slow:
        raise CommandError("The database did not answer in time.")
    crew, own = Crew(alias), Queue.objects.using(alias).in_bulk()
    limits = Limit.objects.using(alias).filter(name__startswith="queue:").in_bulk()
    rows = [
        _queue_row(each, crew, limits.get(f"queue:{each.name}"), own.get(each.name))
        for each in found
        if queue in ("", each.name)
    ]
    if options["json"]:
        print_json(stdout, [values for _, values in rows])
        return
    head = ("Queue", *DEPTH_HEAD, "Failed in 24 h", "Oldest", "Rate", "Workers", "Limit", "Keeps done",
            "Keeps failed")  # fmt: skip
    cells = [row for row, _ in rows]
    print_table(stdout, head, cells, right=range(1, len(head)), empty="No queue is in use.")


def _queue_row(
    found: QueueFigures, crew: Crew, limit: Limit | None, own: Queue | None
) -> tuple[list[str], dict[str, Any]]:
    """Return the cells of a queue and its JSON. ``own``: its settings, where it has some."""
    rate = per_second([found.hour]) if found.hour else 0.0  # in the last hour
    kept = {}
    for name in ("retention", "failed_retention"):
        of_queue = getattr(own, name, None)
        kept[name] = getattr(conf.current(), name) if of_queue is None else of_queue
    cells = [
        _queue_text(found.depth),
        *depth_counts(found.depth),
        found.failed_text,
        oldest_text(found.depth),
        rate_of_jobs(rate),
        str(crew.serving(found.name)),
        (numbers_text(limit) if limit else "") or "-",
        *map(period, kept.values()),
    ]
    values = {
        **_depth_json(found.depth, crew),
        "lost": found.lost,
        "failed_in_24_hours": found.failed_day,
        "per_second": round(rate, 6),
        "limit": None if limit is None else _limit_json(limit),
        **kept,
    }
    return cells, values


# ----------------------------------------------------------------------------
# ``limits``: the limits, and what runs and waits under them.


def _limits(options: dict[str, Any], stdout: OutputWrapper) -> None:
    found = limit_figures(options["database"])
    if options["json"]:
        print_json(stdout, [_limit_figures_json(each) for each in found])
        return
    head = ("Limit", "At once", "Rate", "Running", "Waiting", "If full", "Origin")
    rows = [_limit_row(each) for each in found]
    empty = "There is no limit. Workers write those that the code declares."
    print_table(stdout, head, rows, right=(1, 3, 4), empty=empty)


def _limit_row(found: LimitFigures) -> tuple[str, ...]:
    limit = found.limit
    return (
        {"queue": f"queue {found.name}", "all": "everything"}.get(found.kind, found.name),
        "-" if limit.concurrency is None else number(limit.concurrency),
        rate_text(limit.rate, limit.per, limit.burst) or "-",
        number(found.running),
        capped(found.waiting),
        limit.on_full,
        origin(limit),
    )


def _limit_figures_json(found: LimitFigures) -> dict[str, Any]:
    limit = found.limit
    return {
        "kind": found.kind,
        "name": found.name,
        **_limit_json(limit),
        "on_full": limit.on_full,
        "running": found.running,
        "waiting": found.waiting,
        "set_by_hand": limit.is_overridden,
        "declared": _limit_json(limit, "declared_") if limit.is_declared else None,
        "declared_by": limit.declared_by,
    }


def _limit_json(limit: Limit, prefix: str = "") -> dict[str, Any]:
    """Return the numbers of a limit, or with the prefix ``declared_`` those that the code declares."""
    return {name: getattr(limit, f"{prefix}{name}") for name in ("concurrency", "rate", "per", "burst")}


# ----------------------------------------------------------------------------
# ``failures``: the groups of failures, or one of them.


def _add_failures(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("fingerprint", nargs="?", default="", help="show this group, with its newest failure")
    add("--span", type=span, default="24h", metavar="SPAN", help="1h, 24h, 7d or 30d back (default: 24h)")
    add("--queue", default="", metavar="NAME", help="only failures of this queue")
    add("--task", default="", metavar="PATH", help="only failures of this task")
    add("--muted", action="store_true", help="the groups that are muted, instead of the others")
    add("--limit", type=at_least(1), default=50, metavar="N", help="at most N groups (default: 50)")


def _failures(options: dict[str, Any], stdout: OutputWrapper) -> None:
    """Print the groups, or one of them."""
    (_show_failures if options["fingerprint"] else _list_failures)(options, options["span"], stdout)


def _list_failures(options: dict[str, Any], back: TimeSpan, stdout: OutputWrapper) -> None:
    which = {name: options[name] for name in ("queue", "task", "muted")}
    found = groups(options["database"], back, **which, most=min(options["limit"], 1_000))
    if options["json"]:
        shown = [_failures_json(each) for each in found]
        print_json(stdout, {"database": options["database"], "span": back.name, "groups": shown})
        return
    rows = [
        (
            each.fingerprint,
            number(each.failed),
            number(each.retried),
            date_time(each.last_seen),
            ": ".join(filter(None, [each.name or "(no error)", each.message])),
            ", ".join(each.tasks[:3]),
        )
        for each in found
    ]
    head = ("Fingerprint", "Failed", "Retried", "Last seen", "Error", "Tasks")
    what = "No muted group" if options["muted"] else "Nothing"
    print_table(stdout, head, rows, right=(1, 2), empty=f"{what} has failed in the last {back.name}.")


def _show_failures(options: dict[str, Any], back: TimeSpan, stdout: OutputWrapper) -> None:
    alias, fingerprint = options["database"], options["fingerprint"].replace("\0", "")
    found = group(alias, fingerprint, back)
    if found is None:
        raise CommandError(f"There is no group of failures {plain(fingerprint)!r}.")
    by_kind = parts(alias, found.fingerprint, back)
    if options["json"]:
        counts = {
            f"by_{kind}": {part.name: {"failed": part.failed, "retried": part.retried} for part in some}
            for kind, some in by_kind.items()
        }
        document = {
            "database": alias,
            "span": back.name,
            **_failures_json(found),
            "traceback": found.traceback,
        }
        print_json(stdout, {**document, **counts})
        return
    known = {
        "Error": found.error_class or "(none)",
        "Message": found.message,
        f"Last {back.name}": f"{found.failed} failed, {found.retried} retried",
        "In total": f"{found.total_failed} failed, {found.total_retried} retried",
        "First seen": date_time(found.first_seen),
        "Last seen": f"{date_time(found.last_seen)}, job {found.sample_job}",
        "Muted": f"by {found.muted_by or '?'} at {date_time(found.muted_at)}" if found.muted_at else "",
    }
    for kind, some in by_kind.items():
        names = [f"{part.name} ({part.failed} failed, {part.retried} retried)" for part in some if part.name]
        known[f"By {kind}"] = ", ".join(names)
    print_facts(stdout, known)
    stdout.write("\n".join(["", *plain_lines(found.traceback or "(no traceback)")]))


def _failures_json(found: GroupFigures) -> dict[str, Any]:
    columns = (
        "fingerprint", "error_class", "message", "failed", "retried", "total_failed", "total_retried",
        "sample_job", "muted_by", "first_seen", "last_seen", "muted_at",
    )  # fmt: skip
    return {
        **{name: getattr(found, name) for name in columns},
        "tasks": list(found.tasks),
        "versions": list(found.versions),
        "points": [asdict(point) for point in found.points],
    }


SUBCOMMANDS = [
    Subcommand("status", "Show the health, what helps, the queues, and what to type next (the default)",
               None, _status),
    Subcommand("stats", "Show what waits in each queue, and what ran in a span of time", _add_stats, _stats),
    Subcommand("health", "Tell whether the queues are healthy, in one line and by the exit code",
               _add_health, _health),
    Subcommand("queues", "List the queues: jobs, failures, limits, and how long they keep finished jobs",
               _add_queues, _queues),
    Subcommand("limits", "List the limits, what runs and waits under them, and who has set them",
               None, _limits),
    Subcommand("failures", "List failures by error and place, or show one group", _add_failures, _failures),
]  # fmt: skip
