"""``manage.py pgqueue status``, ``stats``, ``health``, ``queues``, ``limits`` and ``failures``.

The admin and the metrics have the same figures. Each subcommand prints them as text or as JSON.
"""

from __future__ import annotations

import math
from argparse import ArgumentParser
from collections.abc import Callable, Iterator
from dataclasses import asdict
from shlex import quote
from typing import Any

from django.core.management.base import CommandError

from ... import conf
from ...formatting import age, date_time, local, number, period, plain, throughput
from ...models import Limit, Queue
from ...monitoring import health as monitoring, spans
from ...monitoring.depth import STATES, Depth, capped, depths, with_more
from ...monitoring.failures import GroupFigures, group, groups, parts
from ...monitoring.limits import limit_figures, numbers_text, origin, rate_text
from ...monitoring.queues import queue_figures
from ...monitoring.spans import OUTCOMES, SHARES, TimeSpan
from ...monitoring.workers import Crew, Vital
from ...postgres.timeout import time_limit, within
from .._arguments import at_least, seconds, span
from .._conditions import warn_of_unknown_queues, whole_fingerprint
from .._output import Block, Columns, Nothing, Output, Table, plain_lines
from .._parser import argument, found as subcommands, subcommand

STATS_TIMEOUT = 10.0  # seconds that one statement of ``stats`` may take

_QUEUE = argument("--queue", default="", metavar="NAME", help="only this queue")


def _span(default: str) -> Callable[[ArgumentParser], Any]:
    text = f"1h, 24h, 7d or 30d back (default: {default})"
    return argument("--span", type=span, default=default, metavar="SPAN", help=text)


#: The jobs of a queue, the most important first: what does not fit into a terminal is below the row.
DEPTH: Columns = {
    "Ready": lambda depth: capped(depth.ready),
    "Oldest": lambda depth: age(depth.oldest_ready) if depth.ready else "-",
    "Running": lambda depth: capped(depth.running),
    "Scheduled": lambda depth: capped(depth.scheduled),
    "Retrying": lambda depth: capped(depth.retrying),
    "Blocked": lambda depth: capped(depth.blocked),
}
_NAMED_DEPTH: Columns = {
    "Queue": lambda depth: f"{depth.queue_name} (paused)" if depth.is_paused else depth.queue_name,
    **DEPTH,
}


def rate_of_jobs(per_second: float | None) -> str:
    """Return how fast jobs end, if any do."""
    return throughput(per_second) if per_second else "-"


def _depth_json(depth: Depth, crew: Crew | None, **further: Any) -> dict[str, Any]:
    """Return the figures of a queue, and ``further`` ones of it."""
    workers = crew.serving(depth.queue_name) if crew else 0
    return with_more({**asdict(depth), **further}, *STATES, *further) | {"workers": workers}


def _depths(found: list[Depth], crew: Crew, ran: dict[str, float] | None = None) -> Table:
    """Return the table of queues, each with the number of workers that claim its jobs, and its rate."""
    workers = {"Workers": lambda depth: str(crew.serving(depth.queue_name))}
    if ran is not None:
        workers["Rate"] = lambda depth: rate_of_jobs(ran.get(depth.queue_name))
    columns = {**_NAMED_DEPTH, **workers}
    return Table.of(columns, found, range(1, 9), "No queue has live jobs.")


def _state_json(alias: str, found: monitoring.Health) -> dict[str, Any]:
    problems = [{**asdict(problem), "is_minor": problem.is_minor} for problem in found.problems]
    state = {"healthy": found.is_working, "summary": found.headline, "problems": problems}
    return {"database": alias, **state}


@subcommand(
    "status", "Show the health, what helps, the queues, and what to type next (the default)", shards="each"
)
def _status(options: dict[str, Any]) -> Output:
    alias = options["database"]
    state = monitoring.read(alias)
    found, ran = monitoring.judge(state), within(alias, monitoring.PATIENCE, lambda: spans.rates(alias)) or {}
    waiting, crew, commands = [*(state.depths or {}).values()], state.crew, dict(_next_commands(state))
    document = {
        **_state_json(alias, found),
        "workers": crew.count(Vital.RUNNING) if crew else None,
        "queues": [
            {**_depth_json(depth, crew), "per_second": round(ran.get(depth.queue_name, 0.0), 6)}
            for depth in waiting
        ],
        "next": [{"command": command, "text": text} for command, text in commands.items()],
    }
    text: list[Block] = [found.headline]
    for problem in found.problems:
        text += [f"- {problem}", f"  {problem.fix}"]
    text += ["", _depths(waiting, crew, ran)] if crew and state.depths is not None else [""]
    room = max(map(len, commands))
    text += ["", "Next:", *(f"  {command:<{room}}  {words}" for command, words in commands.items())]
    text += ["", {"Subcommands": ", ".join(subcommands())}]
    return Output(text, document, answer="" if found.is_working else plain(found.headline))


def _next_commands(state: monitoring.QueueState) -> Iterator[tuple[str, str]]:
    """Yield the commands that this state suggests, and what they show."""
    is_meant = state.alias == "default" or state.alias in conf.current().shards
    database = "" if is_meant else f" --database {quote(state.alias)}"
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
    yield "manage.py pgqueue --help", "what each subcommand does"


@subcommand(
    "stats",
    "Show what waits in each queue, and what ran in a span of time",
    _span("1h"),
    argument("--by", choices=["queue", "task", "time"], default="task", help="one row for each of these"),
    _QUEUE,
    argument("--task", default="", metavar="PATH", help="only what ran of this task"),
    shards="each",
)
def _stats(options: dict[str, Any]) -> Output:
    alias, back, by = options["database"], options["span"], options["by"]
    queue, name = options["queue"], {"queue": "queue_name", "task": "task_path", "time": "start"}[by]
    warn_of_unknown_queues(alias, "--queue", [queue] if queue else [])
    with time_limit(alias, STATS_TIMEOUT):
        crew, which = Crew(alias), {"queue": queue, "task": options["task"]}
        live = [each for each in depths(alias).values() if queue in ("", each.queue_name)]
        ran = (
            spans.series(alias, back, **which) if by == "time" else spans.breakdown(alias, back, by, **which)
        )
    state = monitoring.full_health(alias)

    document = {
        **_state_json(alias, state),
        "queues": [_depth_json(depth, crew) for depth in live],
        "span": back.name,
        "ran": [
            {
                by: getattr(row, name),
                **{each: getattr(row, each) for each in OUTCOMES},
                "waited": _percentiles(row.waited),
                "ran": _percentiles(row.ran),
            }
            for row in ran
        ],
    }
    percents = [f"{what} {percent}" for what in ("Waited", "Ran") for percent in _PERCENTS]
    rows = [
        [
            f"{local(row.start):%Y-%m-%d %H:%M}" if by == "time" else getattr(row, name),
            *(number(getattr(row, each)) for each in OUTCOMES),
            *(spans.percentile_text(row.wait_histogram, share) or "-" for share in SHARES),
            *(spans.percentile_text(row.run_histogram, share) or "-" for share in SHARES),
        ]
        for row in (ran if any(row.attempts for row in ran) else ())
    ]
    head = [each.capitalize() for each in (by, *OUTCOMES)] + percents
    table = Table(head, rows, range(1, 11), f"Nothing ran in the last {back.name}.")
    return Output([state.line, "", _depths(live, crew), "", table], document)


_PERCENTS = {f"p{round(share * 100)}": share for share in SHARES}


def _percentiles(seconds: Callable[[float], float | None]) -> dict[str, float | None]:
    """Return the percentiles, which are None without attempts and above the last class."""
    found = {name: seconds(share) for name, share in _PERCENTS.items()}
    return {name: None if each in (None, math.inf) else round(each or 0.0, 6) for name, each in found.items()}


@subcommand(
    "health",
    "Tell whether the queues are healthy, in one line and by the exit code",
    argument("--queue", action="append", default=[], metavar="NAME", help="only this queue; may be repeated"),
    argument("--age", type=seconds(), metavar="DURATION", help="how long the oldest ready job may wait"),
    argument("--depth", type=at_least(0), metavar="N", help="how many jobs may be ready in a queue"),
    argument("--workers", type=at_least(0), metavar="N", help="how many workers must serve a queue"),
    shards="each",
)
def _health(options: dict[str, Any]) -> Output:
    given = {name: options[name] for name in ("age", "depth", "workers")}  # replace thresholds of ``HEALTH``
    queues = [options["queue"]] if isinstance(options["queue"], str) else options["queue"]
    found = monitoring.health(options["database"], queues, **given)
    columns = asdict(found)
    del columns["per_second"]  # which is not read for this
    answer = "" if found.is_healthy else plain(found.probe_line)
    document = with_more({"healthy": found.is_healthy, **columns}, "ready", "held")
    return Output([found.probe_line], document, answer=answer)


@subcommand(
    "queues",
    "List the queues: jobs, failures, limits, and how long they keep finished jobs",
    _QUEUE,
    shards="each",
)
def _queues(options: dict[str, Any]) -> Output:
    alias, queue = options["database"], options["queue"]
    warn_of_unknown_queues(alias, "--queue", [queue] if queue else [])
    figures, is_slow = queue_figures(alias)
    if is_slow:
        raise CommandError("The database did not answer in time.")
    crew, own = Crew(alias), Queue.objects.using(alias).in_bulk()
    limits = Limit.objects.using(alias).filter(name__startswith="queue:").in_bulk()
    text, document = [], []
    for found in (each for each in figures if queue in ("", each.name)):
        limit, kept = limits.get(f"queue:{found.name}"), {}
        for name in ("retention", "failed_retention"):
            of_queue = getattr(own.get(found.name), name, None)
            kept[name] = getattr(conf.current(), name) if of_queue is None else of_queue
        row = [
            *(column(found.depth) for column in _NAMED_DEPTH.values()),
            capped(found.failed.day),
            rate_of_jobs(found.rate),
            str(crew.serving(found.name)),
            (numbers_text(limit) if limit else "") or "-",
            *map(period, kept.values()),
        ]
        values = {
            **_depth_json(found.depth, crew, failed_in_24_hours=found.failed.day),
            "lost": found.lost,
            "per_second": round(found.rate, 6),
            "limit": limit and _limit_json(limit),
            **kept,
        }
        text.append(row)
        document.append(values)
    head = [*_NAMED_DEPTH, "Failed in 24 h", "Rate", "Workers", "Limit", "Keeps done", "Keeps failed"]
    return Output([Table(head, text, range(1, len(head)), "No queue is in use.")], document)


_LIMITS: Columns = {
    "Limit": lambda limit: "everything" if limit.name == "*" else limit.name.replace("queue:", "queue ", 1),
    "At once": lambda limit: "-" if limit.concurrency is None else number(limit.concurrency),
    "Rate": lambda limit: rate_text(limit.rate, limit.per, limit.burst) or "-",
    "Running": lambda limit: number(limit.running_now),
    "Waiting": lambda limit: capped(limit.waiting_now),
    "If full": lambda limit: limit.on_full,
    "Origin": origin,
}


@subcommand("limits", "List the limits, what runs and waits under them, and who has set them", shards="each")
def _limits(options: dict[str, Any]) -> Output:
    found = limit_figures(options["database"])
    document = [
        {
            **dict(zip(("kind", "name"), each.target, strict=True)),
            **_limit_json(each),
            "on_full": each.on_full,
            "running": each.running_now,
            **with_more({"waiting": each.waiting_now}, "waiting"),
            "set_by_hand": each.is_overridden,
            "declared": _limit_json(each, "declared_") if each.is_declared else None,
            "declared_by": each.declared_by,
        }
        for each in found
    ]
    empty = "There is no limit. Workers write the limits that the code declares."
    return Output([Table.of(_LIMITS, found, (1, 3, 4), empty)], document)


def _limit_json(limit: Limit, prefix: str = "") -> dict[str, Any]:
    """Return the numbers of a limit, or with the prefix ``declared_`` the numbers of the code."""
    return {name: getattr(limit, f"{prefix}{name}") for name in ("concurrency", "rate", "per", "burst")}


SHORT = 12  # characters of a fingerprint in a list; commands take its beginning

_FAILURES: Columns = {
    "Fingerprint": lambda found: found.fingerprint[:SHORT],
    "Failed": lambda found: number(found.failed),
    "Retried": lambda found: number(found.retried),
    "Last seen": lambda found: date_time(found.last_seen),
    "Error": lambda found: ": ".join(filter(None, [found.name or "(no error)", found.message])),
    "Tasks": lambda found: ", ".join(found.tasks[:3]),
}


@subcommand(
    "failures",
    "List failures by error and place, or show one group",
    argument("fingerprint", nargs="?", default="", help="show this group, or the one that begins so"),
    _span("24h"),
    argument("--queue", default="", metavar="NAME", help="only failures of this queue"),
    argument("--task", default="", metavar="PATH", help="only failures of this task"),
    argument("--muted", action="store_true", help="the groups that are muted, instead of the others"),
    argument("--limit", type=at_least(1), default=50, metavar="N", help="at most N groups (default: 50)"),
    shards="each",
)
def _failures(options: dict[str, Any]) -> Output:
    alias, back, fingerprint = options["database"], options["span"], options["fingerprint"]
    if fingerprint:
        return _one_group(alias, back, whole_fingerprint(alias, fingerprint.replace("\0", "")))
    which = {name: options[name] for name in ("queue", "task", "muted")}
    found = groups(alias, back, **which, most=min(options["limit"], 1_000))
    document = {"database": alias, "span": back.name, "groups": [_group_json(each) for each in found]}
    what = "No muted group" if options["muted"] else "Nothing"
    table = Table.of(_FAILURES, found, (1, 2), f"{what} has failed in the last {back.name}.")
    return Output([table], document)


def _one_group(alias: str, back: TimeSpan, fingerprint: str) -> Output:
    found = group(alias, fingerprint, back)
    if found is None:
        raise Nothing(f"There is no group of failures {plain(fingerprint)!r}.")
    known = {
        "Fingerprint": found.fingerprint,
        "Error": found.error_class or "(none)",
        "Message": found.message,
        f"Last {back.name}": f"{found.failed} failed, {found.retried} retried",
        "In total": f"{found.total_failed} failed, {found.total_retried} retried",
        "First seen": date_time(found.first_seen),
        "Last seen": f"{date_time(found.last_seen)}, job {found.sample_job}",
        "Muted": f"by {found.muted_by or '?'} at {date_time(found.muted_at)}" if found.muted_at else "",
    }
    document = {"database": alias, "span": back.name, **_group_json(found), "traceback": found.traceback}
    for kind, some in parts(alias, found.fingerprint, back).items():
        document[f"by_{kind}"] = {
            each.name: {"failed": each.failed, "retried": each.retried} for each in some
        }
        names = [f"{part.name} ({part.failed} failed, {part.retried} retried)" for part in some if part.name]
        known[f"By {kind}"] = ", ".join(names)
    return Output([known, "", *plain_lines(found.traceback or "(no traceback)")], document)


def _group_json(found: GroupFigures) -> dict[str, Any]:
    columns = asdict(found)
    del columns["traceback"]  # which a list does not read
    return columns
