"""Whether a queue is well, in one sentence: for the overview, for the terminal, and for the demonstration.

The verdict has all problems of ``health``, and those that a person wants to know: jobs that have lost their
worker, workers that are silent, failures that have doubled, and pauses that hold jobs back.

Each part is read with its own time limit. If one is too slow, the others still count.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from django.db import Error
from django.db.models import Q
from django.db.models.functions import Now
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from ..models import Pause, stat
from ..time_limit import within
from ..vitals import Vital
from ..wording import age
from .crew import Crew
from .depth import depths
from .health import PATIENCE, Health, Problem, judged, unreachable, watched
from .lost import lost_jobs
from .spans import Span, series
from .throughput import per_second, rate_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .depth import Depth
    from .spans import Figures

__all__ = ["State", "Verdict", "judge", "read", "verdict"]

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
        pauses=within(alias, PATIENCE, lambda: list(pauses)),
        minutes=within(alias, PATIENCE, lambda: series(alias, _SPAN)),
    )


def judge(state: State) -> Verdict:
    """Return the verdict on a state, worst problems first."""
    if state.depths is None or state.crew is None:
        found = unreachable(state.alias, is_slow=True)
    else:
        found = judged(state.alias, state.depths, state.crew)
    more = [*_lost(state), *_silent(state), *_failures(state), *_paused(state)]
    return _told((*found.problems, *more)) if found.problems or more else Verdict(_healthy(state, found), ())


def _told(problems: tuple[Problem, ...]) -> Verdict:
    count = len(problems)
    return Verdict(ngettext("%(count)d problem", "%(count)d problems", count) % {"count": count}, problems)


def _healthy(state: State, found: Health) -> str:
    parts = [
        ngettext("%(count)d worker", "%(count)d workers", found.workers) % {"count": found.workers},
        rate_text(state.per_second),
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
