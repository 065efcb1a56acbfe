"""``manage.py pgqueue status``, ``stats``, ``health``, ``queues``, ``limits``, ``workers`` and ``database``.

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
from ...formatting import age, local, number, period, plain, throughput
from ...models import Limit, Queue
from ...monitoring import health as monitoring
from ...monitoring.database import PartState, database
from ...monitoring.limits import LimitFigures, limit_figures, numbers_text, origin, rate_text
from ...monitoring.queues import Depth, QueueFigures, capped, depths, queue_figures
from ...monitoring.spans import SHARES, Figures, breakdown, per_second, percentile_text, rates, series
from ...monitoring.workers import Crew, Vital, busy_text, queues_text, state_text
from ...postgres.timeout import time_limit, within
from .._arguments import at_least, seconds, span
from .._conditions import warn_of_unknown_queues
from .._output import print_json, print_table
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


def _add_json(parser: ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print everything as JSON")


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
    _add_json(parser)


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
    _add_json(parser)


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
    _add_json(parser)


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
# ``workers`` and ``database``.


def _workers(options: dict[str, Any], stdout: OutputWrapper) -> None:
    """Print a line for each worker."""
    found = Crew(options["database"]).workers
    if options["json"]:
        print_json(stdout, [_worker_json(worker) for worker in found])
        return
    for worker in found:
        serves_all = not worker.queues and not worker.exclude_queues
        queues = "all queues" if serves_all else f"queues {queues_text(worker)}"
        stdout.write(
            f"{plain(str(worker))} {state_text(worker)}: {busy_text(worker)} jobs, {plain(queues)}, "
            f"last heartbeat {period(worker.age)} ago (id {worker.pk})"
        )
    if not found:
        stdout.write("No worker is registered.")


def _worker_json(worker: Any) -> dict[str, Any]:
    columns = (
        "id", "host", "pid", "queues", "exclude_queues", "slots", "version", "drain", "lost", "started_at",
        "heartbeat_at",
    )  # fmt: skip
    return {
        **{name: getattr(worker, name) for name in columns},
        "state": worker.vital.value,
        "running": worker.busy - worker.lost,
    }


def _add_database(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--statements",
        action="store_true",
        help="with --json: also print the texts of statements, which may contain the arguments of jobs",
    )
    _add_json(parser)


def _database(options: dict[str, Any], stdout: OutputWrapper) -> None:
    """Print a line for each part, and below it what to do if there is something to do."""
    parts = database(options["database"], statements=options["statements"])
    if options["json"]:
        print_json(stdout, {"database": options["database"], "parts": [part.as_json() for part in parts]})
        return
    for part in parts:
        stdout.write(plain(f"{part.title}: {PartState(part.state).label}. {part.finding}"))
        if part.state == PartState.ACT:
            stdout.write(plain(f"  {part.rule}"))


SUBCOMMANDS = [
    Subcommand("status", "Show the health, what helps, the queues, and what to type next (the default)",
               _add_json, _status),
    Subcommand("stats", "Show what waits in each queue, and what ran in a span of time", _add_stats, _stats),
    Subcommand("health", "Tell whether the queues are healthy, in one line and by the exit code",
               _add_health, _health),
    Subcommand("queues", "List the queues: jobs, failures, limits, and how long they keep finished jobs",
               _add_queues, _queues),
    Subcommand("limits", "List the limits, what runs and waits under them, and who has set them",
               _add_json, _limits),
    Subcommand("workers", "List the workers, whether they are alive, and what they do", _add_json, _workers),
    Subcommand("database", "Show locks, old transactions, dead rows, connections and traffic, with advice",
               _add_database, _database),
]  # fmt: skip
