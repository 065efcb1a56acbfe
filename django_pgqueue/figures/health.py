"""Whether a queue is healthy: its age, its depth and its workers against the thresholds of ``HEALTH``.

A queue that is paused is not measured, since its jobs wait on purpose.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from django.db import Error
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from .. import conf
from ..conf_values import Thresholds
from ..time_limit import TimeLimitReached, time_limit
from ..vitals import Vital
from ..wording import age, period
from .crew import Crew
from .depth import MOST, Depth, depths

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

__all__ = ["PATIENCE", "Health", "Problem", "health", "judged", "thresholds_of", "unreachable", "watched"]

#: The last four are found by ``verdict`` only: they are no reason to restart anything or to wake up somebody.
Kind = Literal[
    "no_worker", "few_workers", "age", "depth", "unserved", "unreachable",
    "lost", "silent", "failures", "paused",
]  # fmt: skip

PATIENCE = 2.0  # seconds that one statement may take
ALL_OTHERS = "*"
_NOTHING: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a database or a queue is not healthy."""

    kind: Kind
    queue: str
    """Empty if it is not about one queue."""
    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Health:
    """What was found in one database."""

    database: str
    problems: tuple[Problem, ...]
    workers: int = 0
    """How many workers claim jobs."""
    ready: int = 0
    oldest_ready: float = 0.0

    @property
    def is_healthy(self) -> bool:
        """Whether there is no problem."""
        return not self.problems

    @property
    def line(self) -> str:
        """The state in one line."""
        if self.problems:
            return _("unhealthy: %(problems)s") % {"problems": "; ".join(map(str, self.problems))}
        return _("healthy: workers %(workers)d, ready jobs %(ready)s, the oldest for %(age)s") % {
            "workers": self.workers,
            "ready": _("about %(count)s") % {"count": self.ready} if self.ready >= MOST else str(self.ready),
            "age": age(self.oldest_ready),
        }


def health(alias: str, queues: Collection[str] = (), **given: Any) -> Health:
    """Return the state of the queues of a database, or of these queues only.

    ``given``: thresholds that replace those of the settings: ``age``, ``depth``, ``workers``. This never
    raises an error of the database: one that does not answer is not healthy.
    """
    named, most = watched(queues, given)
    try:
        with time_limit(alias, PATIENCE):
            found, crew = depths(alias, named, most), Crew(alias)
    except TimeLimitReached:
        return unreachable(alias, is_slow=True)
    except Error:
        return unreachable(alias)
    return judged(alias, found, crew, queues, given)


def watched(queues: Collection[str] = (), given: Mapping[str, Any] = _NOTHING) -> tuple[set[str], int]:
    """Return the queues that must be looked at, jobs or not, and up to which number jobs must be counted."""
    named = {*_named(), *queues}
    limits = [thresholds_of(name, given) for name in (*named, ALL_OTHERS)]
    return named, max([MOST, *(limit.depth + 1 for limit in limits if limit.depth is not None)])


def judged(
    alias: str,
    found: Mapping[str, Depth],
    crew: Crew,
    queues: Collection[str] = (),
    given: Mapping[str, Any] = _NOTHING,
) -> Health:
    """Return the state for figures that are read already."""
    named = _named()
    seen = [depth for name, depth in found.items() if name in queues or not queues]
    missing = [] if queues else _without_workers(crew, thresholds_of(ALL_OTHERS, given))
    problems = [*missing]
    for depth in seen:
        name = depth.queue_name
        problems += _late(depth, thresholds_of(name, given))
        if not missing and (name in named or name in queues or depth.ready or depth.running):
            problems += _unserved(depth, crew, thresholds_of(name, given))
    return Health(
        alias,
        tuple(problems),
        workers=crew.count(Vital.RUNNING),
        ready=sum(depth.ready for depth in seen),
        oldest_ready=max((depth.oldest_ready for depth in seen if not depth.is_paused), default=0.0),
    )


def unreachable(alias: str, *, is_slow: bool = False) -> Health:
    """Return the state of a database that does not answer."""
    text = _("the database cannot be read")
    if is_slow:
        limit = period(timedelta(seconds=PATIENCE))
        text = _("the database did not answer within %(limit)s") % {"limit": limit}
    return Health(alias, (Problem("unreachable", "", text),))


def _named() -> set[str]:
    return {name for name in conf.current().health if name != ALL_OTHERS}


def thresholds_of(queue: str, given: Mapping[str, Any] = _NOTHING) -> Thresholds:
    """Return the thresholds of a queue."""
    settings = conf.current().health
    found = settings.get(queue) or settings.get(ALL_OTHERS) or Thresholds()
    return replace(found, **{name: value for name, value in given.items() if value is not None})


def _without_workers(crew: Crew, limit: Thresholds) -> list[Problem]:
    """Return the problem that too few workers claim jobs at all."""
    alive = crew.count(Vital.RUNNING)
    if alive >= limit.workers:
        return []
    if alive:
        numbers = {"alive": alive, "least": limit.workers}
        text = ngettext(
            "%(alive)d worker claims jobs, at least %(least)d are expected",
            "%(alive)d workers claim jobs, at least %(least)d are expected",
            alive,
        )
        return [Problem("few_workers", "", text % numbers)]
    text = _("no worker claims jobs")
    if crew.count(Vital.DRAINING):
        text = _("no worker claims jobs, because all are stopping")
    return [Problem("no_worker", "", text)]


def _late(depth: Depth, limit: Thresholds) -> list[Problem]:
    """Return the problems that the jobs of a queue wait too long, or that there are too many."""
    found: list[Problem] = []
    if depth.is_paused:
        return found
    name = depth.queue_name
    if limit.age is not None and depth.oldest_ready > limit.age:
        ages = {"queue": name, "age": age(depth.oldest_ready), "most": age(limit.age)}
        text = _("%(queue)s: the oldest ready job waits for %(age)s, longer than %(most)s") % ages
        found.append(Problem("age", name, text))
    if limit.depth is not None and depth.ready > limit.depth:
        text = ngettext(
            "%(queue)s: more than %(most)d job is ready",
            "%(queue)s: more than %(most)d jobs are ready",
            limit.depth,
        )
        text %= {"queue": name, "most": limit.depth}
        found.append(Problem("depth", name, text))
    return found


def _unserved(depth: Depth, crew: Crew, limit: Thresholds) -> list[Problem]:
    """Return the problem that too few workers claim the jobs of a queue."""
    serving = crew.serving(depth.queue_name)
    if depth.is_paused or serving >= limit.workers:
        return []
    numbers = {"queue": depth.queue_name, "serving": serving, "least": limit.workers}
    text = ngettext(
        "%(queue)s: served by %(serving)d of at least %(least)d worker",
        "%(queue)s: served by %(serving)d of at least %(least)d workers",
        limit.workers,
    )
    return [Problem("unserved", depth.queue_name, text % numbers)]
