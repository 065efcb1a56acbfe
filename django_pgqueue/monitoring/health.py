"""Whether a queue is healthy: its age, its depth and its workers against the thresholds of ``HEALTH``.

A queue that is paused is not measured, since its jobs wait on purpose.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import timedelta
from shlex import quote
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from django.db import Error
from django.db.models import Q
from django.db.models.functions import Now
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from .. import conf
from ..conf import Thresholds
from ..formatting import age, period, throughput
from ..models import Pause, stat
from ..postgres.timeout import TimeLimitReached, time_limit, within
from .foreign_locks import foreign_locks
from .queues import MOST, Depth, capped, depths, lost_jobs
from .spans import Span, per_second, series
from .workers import Crew, Vital

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from .foreign_locks import Holder
    from .spans import Figures

Kind = Literal[
    "no_worker", "few_workers", "age", "depth", "unserved", "foreign_lock", "lost_jobs",
    "unreachable",
    "lost", "silent", "failures", "paused",
]  # fmt: skip
#: Those that are found by ``verdict()`` only: they are no reason to restart anything or to wake up a user.
MINOR = ("lost", "silent", "failures", "paused")

PATIENCE = 2.0  # seconds that one statement may take
ALL_OTHERS = "*"
_NOTHING: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a database or a queue is not healthy."""

    kind: Kind
    queue_name: str
    """Empty if it is not about one queue."""
    text: str
    fix: str = field(default="", compare=False)
    """What helps, in a sentence."""

    def __str__(self) -> str:
        return self.text

    @property
    def is_minor(self) -> bool:
        """Whether the queue is healthy in spite of it."""
        return self.kind in MINOR


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
            "ready": capped(self.ready),
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
            found, crew, holders = depths(alias, named, most), Crew(alias), foreign_locks(alias)
    except TimeLimitReached:
        return unreachable(alias, is_slow=True)
    except Error:
        return unreachable(alias)
    return judged(alias, found, crew, queues, given, holders)


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
    holders: Collection[Holder] = (),
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
    if lost := sum(worker.lost for worker in crew.workers):
        text = ngettext(
            "%(count)d slot is taken by a lost job, whose task has not ended",
            "%(count)d slots are taken by lost jobs, whose tasks have not ended",
            lost,
        )
        problems.append(Problem("lost_jobs", "", text % {"count": lost}))
    if holders:
        problems.append(Problem("foreign_lock", "", "; ".join(map(str, holders))))
    return Health(
        alias,
        _with_fixes(problems, alias, crew),
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
    return Health(alias, _with_fixes([Problem("unreachable", "", text)], alias, None))


def _with_fixes(problems: Iterable[Problem], alias: str, crew: Crew | None) -> tuple[Problem, ...]:
    is_starting = crew is not None and crew.one_is_starting
    return tuple(
        replace(each, fix=_fix(each.kind, each.queue_name, alias, is_starting=is_starting))
        for each in problems
    )


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
    if crew.one_is_starting:
        text = _("no worker claims jobs yet, but one is starting")
    elif crew.count(Vital.DRAINING):
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


# ----------------------------------------------------------------------------
# Whether a queue is well, in one sentence: for the overview, for the terminal, and for the demonstration.
#
# The verdict has all problems of ``health``, and those that a person wants to know: jobs that have lost
# their worker, workers that are silent, failures that have doubled, and pauses that hold jobs back.
#
# Each part is read with its own time limit. If one is too slow, the others still count.

_HOUR, _MINUTE = timedelta(hours=1), timedelta(minutes=1)
#: The last hour, and the one before.
_SPAN = Span("2h", 2 * _HOUR, _MINUTE, stat.Span.MINUTE, _HOUR, stat.Span.HOUR)
_FEW_FAILURES = 10
_FEW_OF_ALL = 0.01  # of the attempts


@dataclass(slots=True)
class State:
    """What the verdict is about. A part is None if it could not be read in time."""

    alias: str
    depths: dict[str, Depth] | None
    crew: Crew | None
    lost: dict[str, int] | None
    holders: list[Holder] | None
    pauses: list[Pause] | None
    minutes: list[Figures] | None
    """The attempts that were claimed in each of the last 120 minutes. The last one is not over."""

    @property
    def hour(self) -> Sequence[Figures]:
        """The minutes of the last hour; none if they could not be read."""
        return (self.minutes or [])[-60:]

    @property
    def failed(self) -> tuple[int, int]:
        """How many jobs failed in the last hour, and in the hour before."""
        before = (self.minutes or [])[:-60]
        return sum(each.failed for each in self.hour), sum(each.failed for each in before)

    @property
    def per_second(self) -> float:
        """How many attempts have ended a second, in this minute and the last one."""
        return per_second(self.hour[-2:])


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result."""

    headline: str
    """"Healthy: 3 workers, 214 jobs/s, the oldest ready job waits 0.4 s", or "2 problems"."""
    problems: tuple[Problem, ...]

    @property
    def is_healthy(self) -> bool:
        """Whether there is no problem."""
        return not self.problems

    @property
    def is_working(self) -> bool:
        """Whether ``health`` finds no problem."""
        return all(problem.is_minor for problem in self.problems)

    @property
    def line(self) -> str:
        """The verdict in one line, with its reasons."""
        return ": ".join(filter(None, [self.headline, "; ".join(map(str, self.problems))]))


def verdict(alias: str) -> Verdict:
    """Return the verdict on a database. This never raises an error of the database."""
    try:
        return judge(read(alias))
    except Error:
        return _told(unreachable(alias).problems)


def read(alias: str) -> State:
    """Read what the verdict is about."""
    named, most = watched()
    in_force = Q(until__isnull=True) | Q(until__gt=Now())
    pauses = Pause.objects.using(alias).filter(in_force).order_by("kind", "name")
    return State(
        alias,
        depths=within(alias, PATIENCE, lambda: depths(alias, named, most)),
        crew=within(alias, PATIENCE, lambda: Crew(alias)),
        lost=within(alias, PATIENCE, lambda: lost_jobs(alias)),
        holders=within(alias, PATIENCE, lambda: foreign_locks(alias)),
        pauses=within(alias, PATIENCE, lambda: list(pauses)),
        minutes=within(alias, PATIENCE, lambda: series(alias, _SPAN)),
    )


def judge(state: State) -> Verdict:
    """Return the verdict on a state, worst problems first."""
    if state.depths is None or state.crew is None:
        found = unreachable(state.alias, is_slow=True)
    else:
        found = judged(state.alias, state.depths, state.crew, holders=state.holders or ())
    minor = [*_lost(state), *_silent(state), *_failures(state), *_paused(state)]
    more = _with_fixes(minor, state.alias, state.crew)
    return _told((*found.problems, *more)) if found.problems or more else Verdict(_healthy(state, found), ())


def _told(problems: tuple[Problem, ...]) -> Verdict:
    count = len(problems)
    return Verdict(ngettext("%(count)d problem", "%(count)d problems", count) % {"count": count}, problems)


def _healthy(state: State, found: Health) -> str:
    parts = [
        ngettext("%(count)d worker", "%(count)d workers", found.workers) % {"count": found.workers},
        throughput(state.per_second),
        _("the oldest ready job waits %(age)s") % {"age": age(found.oldest_ready)}
        if found.ready
        else _("no job is ready"),
    ]
    return _("Healthy: %(parts)s") % {"parts": ", ".join(parts)}


def _lost(state: State) -> list[Problem]:
    count = sum((state.lost or {}).values())
    if not count:
        return []
    text = ngettext(
        "%(count)d running job has lost its worker, and waits for recovery",
        "%(count)d running jobs have lost their workers, and wait for recovery",
        count,
    )
    return [Problem("lost", "", text % {"count": count})]


def _silent(state: State) -> list[Problem]:
    workers = [worker for worker in state.crew.workers if worker.vital == Vital.SILENT] if state.crew else []
    if not workers:
        return []
    count, longest = len(workers), max(worker.age for worker in workers)
    text = ngettext(
        "%(count)d worker has sent no heartbeat for %(age)s",
        "%(count)d workers have sent no heartbeat, for up to %(age)s",
        count,
    )
    return [Problem("silent", "", text % {"count": count, "age": age(longest.total_seconds())})]


def _failures(state: State) -> list[Problem]:
    now, before = state.failed
    attempts = sum(each.attempts for each in state.hour)
    if now < max(_FEW_FAILURES, _FEW_OF_ALL * attempts) or now <= 2 * before:
        return []
    text = _("%(now)d jobs failed in the last hour, %(before)d in the hour before")
    return [Problem("failures", "", text % {"now": now, "before": before})]


def _paused(state: State) -> list[Problem]:
    """Return the pauses that hold jobs back: one of everything, or of a queue with jobs that are ready."""
    pauses, found = state.pauses or [], state.depths or {}
    if any(pause.kind == Pause.Kind.ALL for pause in pauses):
        return [Problem("paused", "", _("everything is paused"))]
    names = [pause.name for pause in pauses if pause.kind == Pause.Kind.QUEUE]
    return [_held(found[name]) for name in names if name in found and found[name].ready]


def _held(depth: Depth) -> Problem:
    text = ngettext(
        "%(queue)s: paused, and %(count)d job waits",
        "%(queue)s: paused, and %(count)d jobs wait",
        depth.ready,
    )
    return Problem("paused", depth.queue_name, text % {"queue": depth.queue_name, "count": depth.ready})


# ----------------------------------------------------------------------------
# What helps against a problem.

_START = gettext_lazy("Start a worker: %(command)s"), "runqueueworker{queues}"
_MORE_SLOTS = gettext_lazy(
    "Start more workers or processes, or give long jobs a queue and workers of their own."
)
#: For each kind of problem: the sentence, and its command, in which ``queues`` and ``target`` are options.
FIXES = {
    "no_worker": _START,
    "few_workers": _START,
    "unserved": _START,
    "age": (_MORE_SLOTS, ""),
    "depth": (_MORE_SLOTS, ""),
    "foreign_lock": (gettext_lazy("End these sessions with pg_terminate_backend()."), ""),
    "lost_jobs": (
        gettext_lazy("Replace the process of the worker, which is in the list: %(command)s"),
        "pgqueue workers",
    ),
    "unreachable": (gettext_lazy("Look for locks and long transactions: %(command)s"), "pgqueue database"),
    "lost": (
        gettext_lazy("Workers that are alive recover them by themselves. If there is none: %(command)s"),
        "runqueueworker",
    ),
    "silent": (
        gettext_lazy("Look at its machine and its log; this names it: %(command)s"),
        "pgqueue workers",
    ),
    "failures": (gettext_lazy("To see them by their errors: %(command)s"), "pgqueue failures --span 1h"),
    "paused": (gettext_lazy("To end the pause: %(command)s"), "pgqueue resume {target}"),
}


def _fix(kind: str, queue: str, alias: str, *, is_starting: bool) -> str:
    """Return what helps against a problem of this kind. ``is_starting``: whether a worker is."""
    if is_starting and kind in ("no_worker", "few_workers"):
        return _("See the log of the worker that starts.")
    text, command = FIXES[kind]
    command = command.format(
        queues=f" --queues {quote(queue)}" if queue else "",
        target=f"--queue {quote(queue)}" if queue else "--everything",
    )
    database = "" if alias == "default" else f" --database {quote(alias)}"
    return str(text) % {"command": f"manage.py {command}{database}"}
