"""Whether a queue is healthy: its age, its depth and its workers against the thresholds of ``HEALTH``.

``health()`` is for probes and alerts. ``full_health()`` also has what is no reason to wake up a user: jobs
that have lost their worker, workers that are silent, failures that have doubled, queues that grow, schedules
that skip their runs, jobs that run unusually long, and pauses that hold jobs back. Each part of it is read
with its own time limit. If one is too slow, the others still count.

A queue that is paused is not measured, since its jobs wait on purpose.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from shlex import quote
from typing import Any

from django.db import Error
from django.utils.translation import gettext as _, gettext_lazy, ngettext

from .. import conf
from ..conf import Thresholds
from ..formatting import age, number, period, throughput
from ..models import Pause
from ..models.queue import IN_FORCE
from ..models.statistics import StatSpan
from ..postgres.timeout import within
from .depth import MOST, Depth, Flow, capped, depths, flows
from .queues import Holder, Skipping, SlowJob, foreign_locks, lost_jobs, skipping_schedules, slow_jobs
from .spans import Figures, TimeSpan, per_second, series
from .workers import Crew, Vital

#: The problems that are found by ``full_health()`` only.
MINOR = ("lost", "silent", "failures", "grows", "skips", "slow_job", "paused")

PATIENCE = 2.0  # seconds that one statement may take
ALL_OTHERS = "*"


@dataclass(frozen=True, slots=True)
class HealthProblem:
    """Why a database or a queue is not healthy."""

    kind: str  # one of ``FIXES``
    queue_name: str  # empty if it is not about one queue
    text: str
    fix: str = field(default="", compare=False)  # what helps, in a sentence
    subject: str = ""  # the name of the schedule, or the id of the job, that it is about

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
    problems: tuple[HealthProblem, ...]
    workers: int = 0  # how many workers claim jobs
    ready: int = 0
    held: int = 0  # how many of these are in paused queues
    oldest_ready: float = 0.0  # seconds, without paused queues
    per_second: float = 0.0
    """How many attempts have ended a second, in this minute and the last one; only in ``full_health()``."""

    @property
    def is_healthy(self) -> bool:
        """Whether there is no problem."""
        return not self.problems

    @property
    def is_working(self) -> bool:
        """Whether there is no problem but minor ones."""
        return all(problem.is_minor for problem in self.problems)

    @property
    def probe_line(self) -> str:
        """The state in one line, for probes."""
        if self.problems:
            return _("unhealthy: %(problems)s") % {"problems": "; ".join(map(str, self.problems))}
        figures = {"workers": self.workers, "ready": capped(self.ready), "age": age(self.oldest_ready)}
        line = _("healthy: workers %(workers)d, ready jobs %(ready)s, the oldest for %(age)s") % figures
        if self.held:
            line += "; " + _("ready jobs in paused queues: %(held)s") % {"held": capped(self.held)}
        return line

    @property
    def headline(self) -> str:
        """ "Healthy: 3 workers, 214 jobs/s, the oldest ready job waits 0.4 s", or "2 problems"."""
        if count := len(self.problems):
            return ngettext("%(count)d problem", "%(count)d problems", count) % {"count": count}
        workers = ngettext("%(count)d worker", "%(count)d workers", self.workers) % {"count": self.workers}
        oldest = _("the oldest ready job waits %(age)s") if self.ready else _("no job is ready")
        parts = [workers, throughput(self.per_second), oldest % {"age": age(self.oldest_ready)}]
        return _("Healthy: %(parts)s") % {"parts": ", ".join(parts)}

    @property
    def line(self) -> str:
        """The headline with the problems, in one line. Templates of projects may show it."""
        return ": ".join(filter(None, [self.headline, "; ".join(map(str, self.problems))]))


#: The last hour, and the one before.
_HOUR, _MINUTE = timedelta(hours=1), timedelta(minutes=1)
_SPAN = TimeSpan("2h", 2 * _HOUR, _MINUTE, StatSpan.MINUTE, _HOUR, StatSpan.HOUR)
_FEW_FAILURES = 10
_FEW_OF_ALL = 0.01  # of the attempts


@dataclass(slots=True)
class QueueState:
    """The figures of a database. A part is None if it was not read, or not in time."""

    alias: str
    depths: dict[str, Depth] | None = None
    crew: Crew | None = None
    holders: list[Holder] | None = None
    lost: dict[str, int] | None = None
    pauses: list[Pause] | None = None
    flows: dict[str, Flow] | None = None
    skipping: list[Skipping] | None = None
    slow: list[SlowJob] | None = None
    minutes: list[Figures] | None = None
    """The attempts that were claimed in each of the last 120 minutes. The last one has not ended."""
    queues: Collection[str] = ()  # the only ones that are looked at; empty for all
    given: Mapping[str, Any] = field(default_factory=dict)  # instead of the thresholds of the settings

    @property
    def seen(self) -> list[Depth]:
        """The queues that are looked at, as far as they could be read."""
        found = self.depths or {}
        return [depth for name, depth in found.items() if name in self.queues or not self.queues]

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


def health(alias: str, queues: Collection[str] = (), **given: Any) -> Health:
    """Return the state of the queues of a database, or of these queues only.

    ``given``: thresholds that replace the ones of the settings: ``age``, ``depth``, ``workers``. This never
    raises an error of the database: one that does not answer is not healthy.
    """
    state = QueueState(alias, queues=queues, given=given)

    def read_major() -> None:
        state.depths, state.crew, state.holders = _depths(state), Crew(alias), foreign_locks(alias)

    try:
        within(alias, PATIENCE, read_major)
    except Error:
        return unreadable(alias)
    return _judged(state, _major(state))


def full_health(alias: str) -> Health:
    """Return the state with the minor problems. This never raises an error of the database."""
    try:
        return judge(read(alias))
    except Error:
        return unreadable(alias)


def read(alias: str) -> QueueState:
    """Read all that ``judge`` needs."""
    state, in_force = QueueState(alias), Pause.objects.using(alias).filter(IN_FORCE)
    state.pauses = within(alias, PATIENCE, lambda: list(in_force.order_by("kind", "name")))
    state.depths = within(alias, PATIENCE, lambda: _depths(state))
    state.crew = within(alias, PATIENCE, lambda: Crew(alias))
    state.holders = within(alias, PATIENCE, lambda: foreign_locks(alias))
    state.lost = within(alias, PATIENCE, lambda: lost_jobs(alias))
    state.flows = within(alias, PATIENCE, lambda: flows(alias))
    state.skipping = within(alias, PATIENCE, lambda: skipping_schedules(alias))
    state.slow = within(alias, PATIENCE, lambda: slow_jobs(alias))
    state.minutes = within(alias, PATIENCE, lambda: series(alias, _SPAN))
    return state


def judge(state: QueueState) -> Health:
    """Return the health of a state, worst problems first."""
    skips = (HealthProblem("skips", "", str(each), subject=each.schedule) for each in state.skipping or [])
    slow = (HealthProblem("slow_job", "", str(each), subject=str(each.job_id)) for each in state.slow or [])
    problems = [*_major(state), *_minor(state), *skips, *slow]
    # While everything is paused, this explains most of the others.
    return _judged(state, sorted(problems, key=lambda each: (each.kind, each.queue_name) != ("paused", "")))


def _judged(state: QueueState, problems: Iterable[HealthProblem]) -> Health:
    crew, seen = state.crew, state.seen
    is_starting = crew is not None and crew.one_is_starting
    return Health(
        state.alias,
        tuple(replace(each, fix=_fix(each, state.alias, is_starting=is_starting)) for each in problems),
        workers=crew.count(Vital.RUNNING) if crew else 0,
        ready=sum(depth.ready for depth in seen),
        held=sum(depth.ready for depth in seen if depth.is_paused),
        oldest_ready=max((depth.oldest_ready for depth in seen if not depth.is_paused), default=0.0),
        per_second=state.per_second,
    )


def _depths(state: QueueState) -> dict[str, Depth]:
    """Read the depths of all queues that must be looked at, jobs or not, counted beyond their thresholds."""
    named = {*conf.current().health, *state.queues} - {ALL_OTHERS}
    limits = [thresholds_of(name, **state.given).depth for name in (*named, ALL_OTHERS)]
    most = max([MOST, *(limit + 1 for limit in limits if limit is not None)])
    return depths(state.alias, named, most, state.pauses)


def thresholds_of(queue: str, **given: Any) -> Thresholds:
    """Return the thresholds of a queue. ``given``: some that replace the ones of the settings."""
    settings = conf.current().health
    found = settings.get(queue) or settings.get(ALL_OTHERS) or Thresholds()
    return replace(found, **{name: value for name, value in given.items() if value is not None})


def unreadable(alias: str) -> Health:
    """Return the health of a database that does not answer."""
    problem = HealthProblem("unreachable", "", _("the database cannot be read"))
    return _judged(QueueState(alias), [problem])


def _major(state: QueueState) -> Iterator[HealthProblem]:
    """Yield the problems of queues and workers against their thresholds."""
    crew, named, given = state.crew, {*conf.current().health, *state.queues}, state.given
    if crew is None or state.depths is None:
        limit = {"limit": period(timedelta(seconds=PATIENCE))}
        yield HealthProblem("unreachable", "", _("the database did not answer within %(limit)s") % limit)
        return
    # While there are too few workers at all, nothing is said about the workers of each queue.
    missing = "" if state.queues else _without_workers(crew, thresholds_of(ALL_OTHERS, **given).workers)
    if missing:
        yield HealthProblem("few_workers" if crew.count(Vital.RUNNING) else "no_worker", "", missing)
    for depth in state.seen:
        if not depth.is_paused:
            must_be_served = depth.queue_name in named or depth.ready or depth.running
            serving = crew.serving(depth.queue_name) if must_be_served and not missing else None
            yield from _of_queue(depth, serving, thresholds_of(depth.queue_name, **given))
    if lost := sum(worker.lost for worker in crew.workers):
        text = ngettext(
            "%(count)d slot is taken by a lost job, whose task has not ended",
            "%(count)d slots are taken by lost jobs, whose tasks have not ended",
            lost,
        )
        yield HealthProblem("lost_jobs", "", text % {"count": lost})
    if state.holders:
        yield HealthProblem("foreign_lock", "", "; ".join(map(str, state.holders)))


def _without_workers(crew: Crew, least: int) -> str:
    """Return why too few workers claim jobs at all; empty if there are enough."""
    alive = crew.count(Vital.RUNNING)
    if alive >= least:
        return ""
    if alive:
        text = ngettext(
            "%(alive)d worker claims jobs, at least %(least)d are expected",
            "%(alive)d workers claim jobs, at least %(least)d are expected",
            alive,
        )
        return text % {"alive": alive, "least": least}
    if crew.one_is_starting:
        return _("no worker claims jobs yet, but one is starting")
    if crew.count(Vital.DRAINING):
        return _("no worker claims jobs, because all are stopping")
    return _("no worker claims jobs")


def _of_queue(depth: Depth, serving: int | None, limit: Thresholds) -> Iterator[HealthProblem]:
    """Yield a queue's problems. ``serving``: how many workers claim its jobs; None if it does not matter."""
    name = depth.queue_name
    if limit.age is not None and depth.oldest_ready > limit.age:
        ages = {"queue": name, "age": age(depth.oldest_ready), "most": age(limit.age)}
        text = _("%(queue)s: the oldest ready job waits for %(age)s, longer than %(most)s") % ages
        yield HealthProblem("age", name, text)
    if limit.depth is not None and depth.ready > limit.depth:
        text = ngettext(
            "%(queue)s: more than %(most)s job is ready",
            "%(queue)s: more than %(most)s jobs are ready",
            limit.depth,
        )
        yield HealthProblem("depth", name, text % {"queue": name, "most": number(limit.depth)})
    if serving is not None and serving < limit.workers:
        text = ngettext(
            "%(queue)s: %(serving)d worker serves it, at least %(least)d should",
            "%(queue)s: %(serving)d workers serve it, at least %(least)d should",
            serving,
        )
        numbers = {"queue": name, "serving": serving, "least": limit.workers}
        yield HealthProblem("unserved", name, text % numbers)


def _minor(state: QueueState) -> Iterator[HealthProblem]:
    if count := sum((state.lost or {}).values()):
        text = ngettext(
            "%(count)s running job has lost its worker, and waits for recovery",
            "%(count)s running jobs have lost their workers, and wait for recovery",
            count,
        )
        yield HealthProblem("lost", "", text % {"count": number(count)})
    workers = state.crew.workers if state.crew else []
    if ages := [worker.age.total_seconds() for worker in workers if worker.vital == Vital.SILENT]:
        text = ngettext(
            "%(count)d worker has sent no heartbeat for %(age)s",
            "%(count)d workers have sent no heartbeat, for up to %(age)s",
            len(ages),
        )
        yield HealthProblem("silent", "", text % {"count": len(ages), "age": age(max(ages))})
    now, before = state.failed
    attempts = sum(each.attempts for each in state.hour)
    if now >= max(_FEW_FAILURES, _FEW_OF_ALL * attempts) and now > 2 * before:
        text = _("%(now)s jobs failed in the last hour, %(before)s in the hour before")
        yield HealthProblem("failures", "", text % {"now": number(now), "before": number(before)})
    found = state.depths or {}
    for name, flow in (state.flows or {}).items():
        if name in found and flow.grows and not found[name].is_paused:
            text = _("%(queue)s grows: from %(before)s ready jobs to %(now)s within %(span)s. %(rates)s")
            counts = {"before": number(flow.ready_before), "now": number(flow.ready)}
            values = {"queue": name, **counts, "span": age(flow.seconds), "rates": flow.rates}
            yield HealthProblem("grows", name, text % values)
    # The pauses that hold jobs back: one of everything, or of a queue with jobs that are ready.
    if any(pause.kind == Pause.Kind.ALL for pause in state.pauses or []):
        yield HealthProblem("paused", "", _("everything is paused"))
        return
    for name in (pause.name for pause in state.pauses or [] if pause.kind == Pause.Kind.QUEUE):
        if ready := found[name].ready if name in found else 0:
            text = ngettext(
                "%(queue)s: paused, and %(count)s job waits",
                "%(queue)s: paused, and %(count)s jobs wait",
                ready,
            )
            yield HealthProblem("paused", name, text % {"queue": name, "count": capped(ready)})


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
    "grows": (_MORE_SLOTS, ""),
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
    "skips": (gettext_lazy("To see its runs: %(command)s"), "pgqueue schedules show {subject}"),
    "slow_job": (gettext_lazy("To see what it is doing now: %(command)s"), "pgqueue stack {subject}"),
    "paused": (gettext_lazy("To end the pause: %(command)s"), "pgqueue resume {target}"),
}


def _fix(problem: HealthProblem, alias: str, *, is_starting: bool) -> str:
    """Return what helps against a problem. ``is_starting``: whether a worker is."""
    if is_starting and problem.kind in ("no_worker", "few_workers"):
        return _("See the log of the worker that starts.")
    text, command = FIXES[problem.kind]
    queue = quote(problem.queue_name) if problem.queue_name else ""
    command = command.format(
        queues=f" --queues {queue}" if queue else "",
        target=f"--queue {queue}" if queue else "--everything",
        subject=problem.subject,
    )
    database = "" if alias == "default" else f" --database {quote(alias)}"
    return str(text) % {"command": f"manage.py {command}{database}"}
