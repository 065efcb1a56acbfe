"""How many jobs wait and run in each queue: now, at each minute, and where that leads.

Now is counted by one statement, up to ``MOST`` jobs of each kind, so it takes as long with a million waiting
jobs as with five thousand. Beyond it, a page shows "5,000+" and no digits that it does not know. Once a
minute, a supervisor counts all jobs, and keeps that (``pgqueue_depth``): for the charts, for what metrics
say beyond the limit, and to see whether a queue grows.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple, Self

from django.utils.translation import gettext as _

from ..formatting import age, local, number, throughput
from ..models import Pause
from ..models.queue import IN_FORCE, PauseKind
from ..postgres import fetch_rows, sql_of
from ..postgres.timeout import rows_within
from ..redaction import redact_call
from .spans import SPAN_TIMEOUT, TimeSpan

#: Up to here, jobs are counted one by one. Ten longer queues take a quarter of the overview's time.
MOST = 5_000
STATES = ("ready", "scheduled", "retrying", "blocked", "running")


class Counted(NamedTuple):
    """A number of jobs: "100,000+" if there may be more, "?" if nothing is known."""

    number: int
    is_exact: bool = True  # if not, there may be more

    def __str__(self) -> str:
        if self.is_exact:
            return number(self.number)
        return f"{number(self.number)}+" if self.number else "?"

    @property
    def plural(self) -> int:
        """The number that chooses the plural: "1+" is one."""
        return self.number if self.is_exact else max(self.number, 2)

    @classmethod
    def sum(cls, counts: Iterable[Counted]) -> Self:
        """Return the number of all of them."""
        known = list(counts)
        return cls(sum(each.number for each in known), all(each.is_exact for each in known))


def capped(count: int | None, most: int = MOST) -> str:
    """Return a count in words: "5,000+" beyond the limit, "?" if it is not known."""
    return "?" if count is None else str(Counted(min(count, most), count <= most))


def with_more(figures: dict[str, Any], *counts: str, most: int = MOST) -> dict[str, Any]:
    """Return the figures; ``more``: the names of these counts of which there are more than ``most``."""
    more = [name for name in counts if (figures[name] or 0) > most]
    return {**figures, **dict.fromkeys(more, most), "more": more}


_DEPTH_SQL = sql_of(__file__, "depth_now")


@dataclass(slots=True)
class Depth:
    """The live jobs of one queue. A count above the limit of the call says that there are more."""

    queue_name: str
    ready: int = 0  # jobs that a worker may claim now
    scheduled: int | None = 0
    """Jobs that are not due yet, and have not been attempted. None if too many others retry to know it."""
    retrying: int = 0
    """Jobs that have been attempted, and whose next attempt is not due yet: they back off or snooze."""
    running: int = 0
    blocked: int = 0
    """Jobs that wait for their limit key, for other jobs, or until their task is no longer paused."""
    oldest_ready: float = 0.0  # how many seconds the oldest ready job has been due; 0 if there is none
    longest_running: float = 0.0
    """How many seconds the longest running job has been running; 0 if there is none."""
    is_paused: bool = False

    @property
    def needs_workers(self) -> bool:
        """Whether there is work for a worker."""
        return any(getattr(self, state) != 0 for state in STATES)


def depths(
    alias: str, names: Iterable[str] = (), most: int = MOST, pauses: Iterable[Pause] | None = None
) -> dict[str, Depth]:
    """Return these queues, those with live jobs, and paused ones, jobs counted up to ``most``.

    ``pauses``: those in force, if the caller has read them.
    """
    found = {name: Depth(name) for name in names}
    found.update((row[0], Depth(*row)) for row in fetch_rows(alias, _DEPTH_SQL, [most]))
    if pauses is None:
        pauses = Pause.objects.using(alias).filter(IN_FORCE)
    in_force = {(pause.kind, pause.name) for pause in pauses}
    for kind, name in in_force:
        if kind == PauseKind.QUEUE:
            found.setdefault(name, Depth(name)).is_paused = True
    if (PauseKind.ALL, "") in in_force:
        for depth in found.values():
            depth.is_paused = True
    return dict(sorted(found.items()))


@dataclass(frozen=True, slots=True)
class DepthPoint:
    """The live jobs at one moment of a chart's step, the newest that was counted. None: none was."""

    start: datetime  # of the step
    ready: int | None
    scheduled: int | None
    retrying: int | None
    running: int | None
    blocked: int | None
    versions: list[str] | None = None  # of the workers

    @property
    def live(self) -> int | None:
        """All of them together."""
        return None if self.ready is None else sum(getattr(self, state) for state in STATES)


_SERIES = sql_of(__file__, "depth_series")


def depth_series(alias: str, span: TimeSpan, queue: str = "") -> list[DepthPoint]:
    """Return the points of a chart, oldest first, of all queues or of one. Raises ``TimeLimitReached``."""
    parameters = {"back": span.back, "step": span.step, "end": span.end, "queue": queue}
    return [DepthPoint(*row) for row in rows_within(alias, SPAN_TIMEOUT, _SERIES, parameters)]


def deploys(points: Iterable[DepthPoint]) -> dict[datetime, str]:
    """Return the versions that appeared in a step, by its start. In the first step, none is new."""
    found: dict[datetime, str] = {}
    known: list[str] | None = None
    for point in points:
        if not point.versions:
            continue  # no worker was there, or none counted
        if known is not None and (new := [each for each in point.versions if each not in known]):
            found[point.start] = ", ".join(new)
        known = point.versions
    return found


_FLOW = sql_of(__file__, "depth_flow")
_GROWS_BY, _GROWS_BY_SHARE = 100, 0.2  # ready jobs, and how much of those before
_WAITS = 60.0  # seconds; while the oldest ready job waits less, a queue keeps up


@dataclass(frozen=True, slots=True)
class Flow:
    """The newest count of a queue's jobs, and what became of it within ten minutes. Its name is empty for
    all queues together.
    """

    queue_name: str
    ready: int
    scheduled: int
    retrying: int
    running: int
    blocked: int
    oldest_ready: float
    counted_at: datetime  # the minute of the newest count
    seconds: float  # how far the first count is back; 0 if there is only one
    ready_between: int  # at half the time
    ready_before: int
    arrived: int  # jobs, without the ones that were cancelled or deleted while they waited
    ended: int

    @property
    def arriving(self) -> float:
        """How many jobs arrive a second."""
        return self.arrived / self.seconds if self.seconds else 0.0

    @property
    def ending(self) -> float:
        """How many jobs end a second."""
        return self.ended / self.seconds if self.seconds else 0.0

    @property
    def grows(self) -> bool:
        """Whether more and more jobs are ready, and wait."""
        least = self.ready_before + max(_GROWS_BY, _GROWS_BY_SHARE * self.ready_before)
        rises = self.ready_before <= self.ready_between <= self.ready
        return rises and self.ready >= least and self.oldest_ready >= _WAITS

    @property
    def counted(self) -> str:
        """How many jobs were ready when they were counted, in words."""
        time = f"{local(self.counted_at):%H:%M}"
        return _("%(count)s at %(time)s") % {"count": number(self.ready), "time": time}

    @property
    def rates(self) -> str:
        """How fast jobs arrive and end, in words."""
        rates = {"arriving": throughput(self.arriving), "ending": throughput(self.ending)}
        return _("%(arriving)s arrive, and %(ending)s end") % rates

    @property
    def text(self) -> str:
        """Where it leads, in words; empty if no job waits for long."""
        if not self.ready or self.oldest_ready < _WAITS:
            return ""
        surplus = self.ending - self.arriving
        if surplus <= 0:
            return _("grows") if self.grows else ""
        return _("empty in about %(age)s") % {"age": age(self.ready / surplus)}


def flows(alias: str) -> dict[str, Flow]:
    """Return what became of all queues, and of each that has had jobs; nothing if no worker has counted."""
    return {row[0]: Flow(*row) for row in fetch_rows(alias, _FLOW)}


# Who fills a queue: what its waiting jobs have in common. Up to ``LOOKED_AT`` waiting jobs are all looked at;
# of more, those in some pages of the table, drawn at random, so this takes as long with a million waiting
# jobs as with ten thousand, and a share is off by few percent.

LOOKED_AT = 5_000  # jobs
PAGES = 200  # of the table, for a sample
LEAST_SHARE = 0.05  # the share of the waiting jobs from which on something is shown
SHARES_TIMEOUT = 1.0  # seconds
_FIRST = sql_of(__file__, "backlog_first", "backlog_shares")
_SAMPLE = sql_of(__file__, "backlog_sample", "backlog_shares")


@dataclass(frozen=True, slots=True)
class Share:
    """How many of the waiting jobs that were looked at have something in common."""

    kind: str  # "task", "group", "limit" (key) or "argument"
    task_path: str  # of an argument
    place: str  # of an argument, as a search names it, such as "kwargs.tenant"
    value: str
    jobs: int
    share: float  # from 0 to 1

    @property
    def is_shown(self) -> bool:
        """Whether the redaction leaves the value of an argument as it is."""
        if self.kind != "argument":
            return True
        where, _point, name = self.place.partition(".")
        if where == "kwargs":
            return bool(redact_call([], {name: self.value}, self.task_path)[1][name] == self.value)
        args = [None] * int(name) + [self.value]
        return bool(redact_call(args, {}, self.task_path)[0][-1] == self.value)


@dataclass(frozen=True, slots=True)
class Backlog:
    """What fills a queue."""

    shares: list[Share]
    jobs: int  # how many were looked at
    is_sample: bool  # whether there are more


def backlog(alias: str, depth: Depth, *, arguments: bool) -> Backlog:
    """Return what the waiting jobs of a queue have in common, the largest shares first.

    ``arguments``: whether the user may see them. Raises ``TimeLimitReached``.
    """
    waiting = depth.ready + (depth.scheduled or 0) + depth.retrying + depth.blocked
    is_sample = waiting > LOOKED_AT or depth.scheduled is None
    parameters = {"queue": depth.queue_name, "most": LOOKED_AT, "pages": PAGES, "least": LEAST_SHARE}
    rows = rows_within(alias, SHARES_TIMEOUT, _SAMPLE if is_sample else _FIRST, parameters)
    looked_at = rows[0][-1]
    if is_sample and looked_at < LOOKED_AT // 100:  # a small part of the table
        rows = rows_within(alias, SHARES_TIMEOUT, _FIRST, parameters)
        looked_at = rows[0][-1]
    found = (
        Share(kind, task, place, value, jobs, jobs / looked_at)
        for kind, task, place, value, jobs, _all in rows
        if kind
    )
    shown = [each for each in found if each.is_shown and (arguments or each.kind != "argument")]
    return Backlog(shown, looked_at, is_sample)
