"""``manage.py pgqueue status``, ``stats``, ``health``, ``queues`` and ``limits``: the figures of the queues.

They are those of the admin and of the metrics. Each subcommand prints the same values as text and as JSON.
"""

from __future__ import annotations

import math
from argparse import ArgumentParser
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from shlex import quote
from typing import Any, Literal

from django.core.management.base import CommandError, OutputWrapper

from ... import conf
from ...formatting import age, local, number, period, plain, throughput
from ...models import Limit, Queue
from ...monitoring import health as monitoring
from ...monitoring.limits import LimitFigures, limit_figures, numbers_text, origin, rate_text
from ...monitoring.queues import MOST_FAILURES, Depth, QueueFigures, capped, depths, queue_figures
from ...monitoring.spans import SHARES, Figures, breakdown, per_second, percentile_text, rates, series
from ...monitoring.workers import Crew, Vital
from ...postgres.timeout import time_limit, within
from .._arguments import at_least, seconds, span
from .._conditions import warn_of_unknown_queues
from .._output import print_json, table, width_of
from .._parser import Subcommand

DEPTH_HEAD = ("Ready", "Scheduled", "Retrying", "Blocked", "Running")
STATS_TIMEOUT = 10.0  # seconds that one statement of ``stats`` may take


def depth_counts(depth: Depth) -> list[str]:
    """Return how many jobs are ready, scheduled, retrying, blocked and running."""
    return [
        capped(count)
        for count in (depth.ready, depth.scheduled, depth.retrying, depth.blocked, depth.running)
    ]


def oldest_text(depth: Depth) -> str:
    """Return how long the oldest ready job has been due."""
    return age(depth.oldest_ready) if depth.ready else "-"


def _queue_text(depth: Depth) -> str:
    return f"{depth.queue_name} (paused)" if depth.is_paused else depth.queue_name


def _depth_json(depth: Depth, crew: Crew | None) -> dict[str, Any]:
    return {**asdict(depth), "workers": crew.serving(depth.queue_name) if crew else 0}


def _depth_table(
    found: Sequence[Depth], crew: Crew, stdout: OutputWrapper, ran: Mapping[str, float] | None = None
) -> str:
    """Return the table of queues, each with the number of workers that claim its jobs, and its rate."""
    head = ["Queue", *DEPTH_HEAD, "Oldest", "Workers", *(["Rate"] if ran is not None else [])]
    rows = [
        [_queue_text(depth), *depth_counts(depth), oldest_text(depth), str(crew.serving(depth.queue_name))]
        for depth in found
    ]
    if ran is not None:
        for row, depth in zip(rows, found, strict=True):
            row.append(throughput(ran[depth.queue_name]) if ran.get(depth.queue_name) else "-")
    return table(head, rows, right=range(1, len(head)), width=width_of(stdout))


def _state_json(alias: str, found: monitoring.Health) -> dict[str, Any]:
    problems = [{**asdict(problem), "is_minor": problem.is_minor} for problem in found.problems]
    return {
        "database": alias,
        "healthy": found.is_working,
        "summary": found.headline,
        "problems": problems,
    }


def _add_json(parser: ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print everything as JSON")


# ----------------------------------------------------------------------------
# ``status``: is all well, what waits, and what to type next.


def _status(options: dict[str, Any], stdout: OutputWrapper) -> None:
    """Print it, and fail if ``health`` would."""
    alias = options["database"]
    state = monitoring.read(alias)
    found, ran = monitoring.judge(state), within(alias, monitoring.PATIENCE, lambda: rates(alias)) or {}
    waiting, crew = [*(state.depths or {}).values()], state.crew
    if options.get("json"):
        document = {
            **_state_json(alias, found),
            "workers": crew.count(Vital.RUNNING) if crew else None,
            "queues": [
                {**_depth_json(depth, crew), "per_second": round(ran.get(depth.queue_name, 0.0), 6)}
                for depth in waiting
            ],
            "next": [{"command": command, "text": text} for command, text in _next_commands(state)],
        }
        print_json(stdout, document)
    else:
        stdout.write(plain(found.headline))
        for problem in found.problems:
            stdout.write(plain(f"- {problem}"))
            stdout.write(plain(f"  {problem.fix}"))
        stdout.write("")
        if waiting and crew:
            stdout.write(_depth_table(waiting, crew, stdout, ran))
        elif state.depths is not None:
            stdout.write("No queue has live jobs.")
        stdout.write("\nNext:")
        commands = dict(_next_commands(state))
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
    add(
        "--span",
        type=span,
        default="1h",
        metavar="SPAN",
        help="how far back: 1h, 24h, 7d or 30d (default: 1h)",
    )
    add("--by", choices=["queue", "task", "time"], default="task", help="one row for each of these")
    add("--queue", default="", metavar="NAME", help="only this queue")
    add("--task", default="", metavar="PATH", help="only what ran of this task")
    _add_json(parser)


def _stats(options: dict[str, Any], stdout: OutputWrapper) -> None:
    alias, back = options["database"], span(options.get("span") or "1h")
    by: Literal["queue", "task", "time"] = options.get("by") or "task"
    queue, task = options.get("queue") or "", options.get("task") or ""
    warn_of_unknown_queues(alias, "--queue", [queue] if queue else [])
    with time_limit(alias, STATS_TIMEOUT):
        crew = Crew(alias)
        live = [each for each in depths(alias).values() if queue in ("", each.queue_name)]
        ran = (
            series(alias, back, queue=queue, task=task)
            if by == "time"
            else breakdown(alias, back, by, queue=queue, task=task)
        )
    state = monitoring.verdict(alias)
    if options.get("json"):
        document = {
            **_state_json(alias, state),
            "queues": [_depth_json(depth, crew) for depth in live],
            "span": back.name,
            "ran": [_figures_json(row, by) for row in ran],
        }
        print_json(stdout, document)
        return
    stdout.write(plain(state.line))
    stdout.write("")
    stdout.write(_depth_table(live, crew, stdout) if live else "No queue has live jobs.")
    stdout.write("")
    if any(row.attempts for row in ran):
        percents = [*_percents()]
        head = (
            by.capitalize(), "Done", "Failed", "Retried", "Cancelled",
            *(f"Waited {name}" for name in percents), *(f"Ran {name}" for name in percents),
        )  # fmt: skip
        rows = [_figures_row(row, by) for row in ran]
        stdout.write(table(head, rows, right=range(1, len(head)), width=width_of(stdout)))
    else:
        stdout.write(f"Nothing ran in the last {back.name}.")


def _percents() -> dict[str, float]:
    return {f"p{round(share * 100)}": share for share in SHARES}


def _figures_row(row: Figures, by: str) -> list[str]:
    counts = (row.done, row.failed, row.retried, row.cancelled)
    histograms = (row.wait_histogram, row.run_histogram)
    times = [percentile_text(histogram, share) or "-" for histogram in histograms for share in SHARES]
    name = f"{local(row.start):%Y-%m-%d %H:%M}" if by == "time" else getattr(row, _NAMES[by])
    return [name, *map(number, counts), *times]


_NAMES = {"queue": "queue_name", "task": "task_path"}


def _figures_json(row: Figures, by: str) -> dict[str, Any]:
    """Return the values of a row. A percentile is None without attempts and above the last class."""

    def finite(found: float | None) -> float | None:
        return None if found is None or math.isinf(found) else round(found, 6)

    return {
        by: row.start.isoformat() if by == "time" else getattr(row, _NAMES[by]),
        **{name: getattr(row, name) for name in ("done", "failed", "retried", "cancelled")},
        "waited": {name: finite(row.waited(share)) for name, share in _percents().items()},
        "ran": {name: finite(row.ran(share)) for name, share in _percents().items()},
    }


# ----------------------------------------------------------------------------
# ``health``: one line and an exit code, for probes and scripts.


def _add_health(parser: ArgumentParser) -> None:
    """Add which queues, and thresholds that replace those of ``HEALTH``."""
    add = parser.add_argument
    add("--queue", action="append", default=[], metavar="NAME", help="only this queue; may be repeated")
    add(
        "--age",
        type=seconds(),
        metavar="DURATION",
        help="how long the oldest ready job may wait, such as 90s or 30m",
    )
    add("--depth", type=at_least(0), metavar="N", help="how many jobs may be ready in a queue")
    add("--workers", type=at_least(0), metavar="N", help="how many workers must serve a queue")
    _add_json(parser)


def _health(options: dict[str, Any], stdout: OutputWrapper) -> None:
    """Print the line, and fail if there is a problem."""
    given = {name: options.get(name) for name in ("age", "depth", "workers")}
    if given["age"] is not None:
        given["age"] = seconds()(given["age"])
    queues = options.get("queue") or []
    found = monitoring.health(options["database"], [queues] if isinstance(queues, str) else queues, **given)
    if options.get("json"):
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
    _add_json(parser)


def _queues(options: dict[str, Any], stdout: OutputWrapper) -> None:
    alias, queue = options["database"], options.get("queue") or ""
    warn_of_unknown_queues(alias, "--queue", [queue] if queue else [])
    found, is_slow = queue_figures(alias)
    if is_slow:
        raise CommandError("The database did not answer in time.")
    shown = [figures for figures in found if queue in ("", figures.name)]
    crew, own = Crew(alias), Queue.objects.using(alias).in_bulk()
    limits = Limit.objects.using(alias).filter(name__startswith="queue:").in_bulk()
    rows = [QueueRow(each, crew, limits.get(f"queue:{each.name}"), own.get(each.name)) for each in shown]
    if options.get("json"):
        print_json(stdout, [row.as_json() for row in rows])
    elif rows:
        head = (
            "Queue", *DEPTH_HEAD, "Failed in 24 h", "Oldest", "Rate", "Workers", "Limit", "Keeps done",
            "Keeps failed",
        )  # fmt: skip
        cells = [row.as_text() for row in rows]
        stdout.write(table(head, cells, right=range(1, len(head)), width=width_of(stdout)))
    else:
        stdout.write("No queue is in use.")


class QueueRow:
    """A queue in the list."""

    def __init__(self, figures: QueueFigures, crew: Crew, limit: Limit | None, own: Queue | None) -> None:
        settings, queue = conf.current(), own or Queue()
        self.figures, self.crew, self.limit = figures, crew, limit
        self.per_second = per_second([figures.hour]) if figures.hour else 0.0  # in the last hour
        self.retention = settings.retention if queue.retention is None else queue.retention
        self.failed_retention = (
            settings.failed_retention if queue.failed_retention is None else queue.failed_retention
        )

    def as_text(self) -> tuple[str, ...]:
        """Return the cells of the table."""
        figures = self.figures
        return (
            _queue_text(figures.depth),
            *depth_counts(figures.depth),
            number(figures.failed_day) + ("+" if figures.failed_day >= MOST_FAILURES else ""),
            oldest_text(figures.depth),
            throughput(self.per_second) if self.per_second else "-",
            str(self.crew.serving(figures.name)),
            (numbers_text(self.limit) if self.limit else "") or "-",
            period(self.retention),
            period(self.failed_retention),
        )

    def as_json(self) -> dict[str, Any]:
        """Return the values."""
        return {
            **_depth_json(self.figures.depth, self.crew),
            "lost": self.figures.lost,
            "failed_in_24_hours": self.figures.failed_day,
            "per_second": round(self.per_second, 6),
            "limit": None if self.limit is None else _limit_json(self.limit),
            "retention": self.retention.total_seconds(),
            "failed_retention": self.failed_retention.total_seconds(),
        }


# ----------------------------------------------------------------------------
# ``limits``: the limits, and what runs and waits under them.


def _limits(options: dict[str, Any], stdout: OutputWrapper) -> None:
    found = limit_figures(options["database"])
    if options.get("json"):
        print_json(stdout, [_limit_figures_json(each) for each in found])
    elif found:
        head = ("Limit", "At once", "Rate", "Running", "Waiting", "If full", "Origin")
        rows = [_limit_row(each) for each in found]
        stdout.write(table(head, rows, right=(1, 3, 4), width=width_of(stdout)))
    else:
        stdout.write("There is no limit. Workers write those that the code declares.")


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
    found = {name: getattr(limit, f"{prefix}{name}") for name in ("concurrency", "rate", "per", "burst")}
    return {**found, "per": None if found["per"] is None else found["per"].total_seconds()}


SUBCOMMANDS = [
    Subcommand(
        "status",
        "Show the health, the problems with what helps, the queues, and what to type next (the default)",
        _add_json,
        _status,
    ),
    Subcommand(
        "stats",
        "Show the depth and age of each queue, and what ran in the last hour, day, week or month",
        _add_stats,
        _stats,
    ),
    Subcommand(
        "health",
        "Tell whether the queues are healthy: exit code 0 or 1, and one line that says why",
        _add_health,
        _health,
    ),
    Subcommand(
        "queues",
        "List the queues: their jobs in each state, failures, limits, and how long they keep finished jobs",
        _add_queues,
        _queues,
    ),
    Subcommand(
        "limits",
        "List the limits of queues, tasks and keys, what runs and waits under them, and who has set them",
        _add_json,
        _limits,
    ),
]
