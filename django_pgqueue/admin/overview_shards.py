"""The figures of the overview, of one database, or of all shards, added up.

A shard that does not answer is a problem and has a row that says so. It adds nothing to the figures, whose
notes name it: a sum without it is not the whole.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import urlencode

from django.http import HttpRequest

from ..formatting import age, number, throughput
from ..models import Job, Queue
from ..monitoring.depth import Depth, DepthPoint, capped, depth_series
from ..monitoring.health import PATIENCE, Health, HealthProblem, QueueState, judge, read, thresholds_of
from ..monitoring.queues import FailedJobs, failed_jobs
from ..monitoring.spans import HOUR, Figures, breakdown, rates, series
from ..postgres.ask import Answers, too_slow
from ..postgres.timeout import within
from ..tasks.registry import queues_in_use
from .charts import chosen_span, gauge
from .console import Paused
from .shard_lists import added_up, by_name, joined, named, over_shards, shard_links
from .shards import is_of_all

MOST_QUEUES = 200
_PART = 1.0  # seconds for a part of one of several shards


class ShardFigures(NamedTuple):
    """What a database knows of now. A part is None if it could not be read in time."""

    state: QueueState
    health: Health
    failed: dict[str, FailedJobs] | None
    names: Collection[str] | None
    hour: dict[str, Figures] | None
    rates: dict[str, float] | None

    @property
    def is_whole(self) -> bool:
        """Whether all figures of the queues could be read in time."""
        return None not in (self.state.depths, self.state.lost, *self[2:])

    @property
    def all_queues(self) -> set[str]:
        """The names of all queues."""
        return {*(self.state.depths or {}), *(self.names or ())}

    def queues(self) -> dict[str, dict[str, Any]]:
        """Return the queues: their jobs, how many workers serve each, and whether that is alarming."""
        state, found = self.state, {}
        for name in sorted(self.all_queues)[:MOST_QUEUES]:
            depth = (state.depths or {}).get(name) or Depth(name)
            limit = thresholds_of(name).age
            serving = state.crew.serving(name) if state.crew else None
            is_late = limit is not None and depth.oldest_ready > limit and not depth.is_paused
            unattended = serving == 0 and depth.needs_workers and not depth.is_paused
            found[name] = {
                "name": name,
                "depth": depth,
                "lost": (state.lost or {}).get(name, 0),
                "serving": serving,
                "is_unattended": unattended,
                "is_late": is_late or unattended,
                "oldest_bar": gauge(depth.oldest_ready / (limit or 300), alarm=is_late),
                "hour": (self.hour or {}).get(name),
                "rate": (self.rates or {}).get(name, 0.0),
                "failed": (self.failed or {}).get(name, FailedJobs()).day,
            }
        return found


@dataclass(frozen=True)
class Graphs:
    """The points of the charts of a span."""

    span: str
    points: Sequence[Figures]
    counted: Sequence[DepthPoint]


def ask_shards(
    admin: Any, request: HttpRequest, *, now: bool, charts: bool
) -> tuple[Answers[ShardFigures], Answers[Graphs]]:
    """Return what is known of now and of the charts, as far as it is asked. Each shard is asked once, so one
    that hangs holds up a page once.
    """
    seconds = _PART if is_of_all(request) else PATIENCE

    def ask(alias: str) -> tuple[list[ShardFigures], Graphs | None]:
        found, drawn, in_time = [], None, partial(within, alias, seconds)
        if now:
            state = read(alias)
            parts: Any = (failed_jobs, queues_in_use, _last_hour, rates)
            found = [ShardFigures(state, judge(state), *(in_time(partial(part, alias)) for part in parts))]
        if charts:
            span = chosen_span(request, alias)  # by the clock of its server
            drawn = in_time(lambda: Graphs(span.name, series(alias, span), depth_series(alias, span)))
        return found, drawn

    answers = over_shards(admin, ask)
    shards = {alias: each for alias, (found, _drawn) in answers.given.items() for each in found}
    drawn = {alias: found for alias, (_shard, found) in answers.given.items() if found}
    slow = {alias: too_slow(seconds) for alias in answers.given if charts and alias not in drawn}
    return Answers(shards, answers.failed), Answers(drawn, answers.failed | slow)


def _last_hour(alias: str) -> dict[str, Figures]:
    return {row.queue_name: row for row in breakdown(alias, HOUR, "queue", most=MOST_QUEUES)}


def state_of(states: Iterable[QueueState]) -> QueueState:
    """Return the figures of one, or of all as the tiles read them, as far as they could be read."""
    states = [*states]
    if len(states) == 1:
        return states[0]
    found = QueueState("")
    found.depths = {
        f"{state.alias}:{name}": depth for state in states for name, depth in (state.depths or {}).items()
    }
    if crews := [state.crew for state in states if state.crew]:
        found.crew = copy(crews[0])
        found.crew.workers = [worker for crew in crews for worker in crew.workers]
    if minutes := [state.minutes for state in states if state.minutes is not None]:
        found.minutes = joined(minutes, most={"seconds"})
    return found


def health_of_all(answers: Answers[ShardFigures]) -> Health:
    """Return the health of all, each problem with the name of its shard."""
    problems = [HealthProblem("unreachable", "", text) for text in unreachable(answers)]
    for alias, shard in answers.given.items():
        problems += [replace(each, text=f"{alias}: {each}") for each in shard.health.problems]
    every = [shard.health for shard in answers.given.values()]
    return Health(
        "",
        tuple(problems),
        workers=sum(each.workers for each in every),
        ready=sum(each.ready for each in every),
        oldest_ready=max((each.oldest_ready for each in every), default=0.0),
        per_second=sum(each.per_second for each in every),
    )


def unreachable(answers: Answers[Any]) -> list[str]:
    """Return a sentence about each shard that did not answer."""
    return [str(Answers[Any]({}, {alias: why})) for alias, why in answers.failed.items()]


def jobs_url(url: partial[str], **filters: str) -> str:
    """Return the URL of a list of jobs; empty for a user who may not view it."""
    if found := url(Job, "changelist"):
        return f"{found}{'&' if '?' in found else '?'}{urlencode(filters)}"
    return ""


def queues_of(
    answers: Answers[ShardFigures], pauses: dict[str, Paused], url: partial[str], *, is_all: bool
) -> dict[str, Any]:
    """Return the queues of a database, or of all shards that could be read, added up by name."""
    given = {alias: each for alias, each in answers.given.items() if each.is_whole or not is_all}
    without, found = [alias for alias in (*answers.given, *answers.failed) if alias not in given], []
    parts = by_name({alias: each.queues() for alias, each in given.items()})
    for name, rows in sorted(parts.items())[:MOST_QUEUES]:
        every = [*rows.values()]
        hours = [row["hour"] for row in every if row["hour"]]
        serving = [row["serving"] for row in every]
        paused = {alias: pauses[alias].queues.get(name, "") for alias in rows}
        address = partial(queue_url, url, name)
        found.append({
            **max(every, key=lambda row: row["depth"].oldest_ready),
            "url": "" if is_all else address(),
            "shards": shard_links(rows, address, without) if is_all else "",
            "depth": added_up([row["depth"] for row in every], most={"oldest_ready", "longest_running"}),
            "hour": added_up(hours, most={"seconds"}) if hours else None,
            "serving": None if None in serving else sum(serving),
            "paused": named(paused, "; ") if is_all else next(iter(paused.values())),
            **{key: sum(row[key] for row in every) for key in ("lost", "rate", "failed")},
            **{key: any(row[key] for row in every) for key in ("is_unattended", "is_late")},
        })  # fmt: skip
    count = len({name for each in given.values() for name in each.all_queues})
    return {"queues": found, "more_queues": max(0, count - MOST_QUEUES)}


def queue_url(url: partial[str], name: str) -> str:
    """Return the page of a queue, or its jobs."""
    return url(Queue, "change", name) or jobs_url(url, queue=name)


def shard_row(alias: str, answers: Answers[ShardFigures], url: str) -> dict[str, Any]:
    """Return a shard with its figures; "?" for what could not be read in time."""
    if alias not in answers.given:
        return {"name": alias, "url": url, "why": answers.failed[alias]}
    state, health, failed, *_more = answers.given[alias]
    depths = None if state.depths is None else [*state.depths.values()]
    return {
        "name": alias,
        "url": url,
        "is_well": health.is_working,
        "problems": number(len(health.problems)),
        "ready": "?" if depths is None else capped(sum(depth.ready for depth in depths)),
        "oldest": age(health.oldest_ready) if health.oldest_ready else "-",
        "running": "?" if depths is None else number(sum(depth.running for depth in depths)),
        "workers": "?" if state.crew is None else number(health.workers),
        "slots": "?" if state.crew is None else number(state.crew.slots),
        "rate": "?" if state.minutes is None else throughput(state.per_second),
        "failed": "?" if failed is None else capped(sum(each.hour for each in failed.values())),
    }
