"""The jobs that an action selects, described so that the same jobs are found again after the confirmation.

Selected rows are described by their ids. All jobs that match the filters of a list are described by bounds:
jobs up to the newest one at the time of the count, and, among the finished jobs, the last ``WINDOW``
(for a search for text, as many as the list itself reads). In both cases, a job that ended after the count
does not count as over: the page did not show that it was done, so the user has not confirmed that it runs a
second time.

The bounds cannot exclude a job whose transaction had taken its id but was not committed at the time of the
count.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any, NamedTuple

from django.db.models import Case, Count, IntegerField, Q, QuerySet, Value, When
from django.db.models.functions import Now

from ...models import Job
from ...models.job import Status
from ...postgres.clock import server_now
from .. import lists
from ..jobs.filters import LIVE_SHELF, on_shelves

if TYPE_CHECKING:
    from .effects import Effect


@dataclass(frozen=True, slots=True)
class Bounds:
    """Which jobs existed, and which of them were over, when they were counted. Stored in a form."""

    as_of: str
    """The time on the clock of the database, in ISO format."""
    newest: int | None = None
    """The highest id; None for selected rows."""
    oldest: int | None = None
    """The lowest id of the jobs that have finished and were counted; None if there are no older ones."""


def bounds(pool: QuerySet[Job], *, across: bool, window: int | None = None) -> Bounds:
    """Return the current bounds.

    ``pool``: the jobs that the list reads. ``across``: whether all jobs that match are selected, or single
    rows. ``window``: how many finished jobs are within the bounds; None for ``WINDOW``.
    """
    pool = pool.order_by("-pk")
    newest, now = pool.values_list("pk", Now()).first() or (0, server_now(pool.db))
    if not across:
        return Bounds(now.isoformat())
    over = pool.filter(pk__lte=newest, shelf__gt=LIVE_SHELF).values_list("pk", flat=True)
    most = lists.WINDOW if window is None else window
    end = list(over[most - 1 : most + 1])
    return Bounds(now.isoformat(), newest, end[0] if len(end) == 2 else None)


def affected(jobs: QuerySet[Job], limits: Bounds, meant: Sequence[Effect]) -> list[QuerySet[Job]]:
    """Return the jobs of these effects, in one queryset for live jobs and one for finished jobs."""
    parts = []
    live = [effect for effect in meant if not effect.is_finished]
    over = [effect for effect in meant if effect.is_finished]
    if limits.newest is not None:
        jobs = jobs.filter(pk__lte=limits.newest)
    if live:
        parts.append(jobs.filter(_any(live), shelf=LIVE_SHELF))
    if over:
        ended = jobs.filter(
            _any(over), shelf__gt=LIVE_SHELF, finished_at__lte=datetime.fromisoformat(limits.as_of)
        )
        statuses = {status for effect in over for status in effect.states}
        if len(statuses) == 1:
            ended = on_shelves(statuses.pop(), ended)
        if limits.oldest is not None:
            ended = ended.filter(pk__gte=limits.oldest)
        parts.append(ended)
    return parts


def _any(meant: Sequence[Effect]) -> Q:
    return reduce(or_, (effect.condition for effect in meant))


# ----------------------------------------------------------------------------
# How many jobs an action would change: exactly if that is cheap to count, otherwise "so many or more".
#
# Finished jobs are within the bounds of ``selection``, so one pass over these counts them all. Running
# jobs have an index. All other jobs are counted in one pass, too, if the planner expects it to cost no more
# than ``MOST_COST``: an index supports the filters, or there are not many jobs. Otherwise only the newest
# ones are counted. The planner does not know what a search for text costs, so its jobs are always counted in
# a window.
#
# All kinds of jobs are counted in one statement, so that a job that ends meanwhile is counted once.

#: In units of the planner, with its default settings: the cost of reading some 200,000 jobs.
MOST_COST = 8_000.0


class Counted(NamedTuple):
    """A number of jobs."""

    number: int
    is_exact: bool = True
    """If not, there may be more."""


def count_all(jobs: QuerySet[Job], limits: Bounds, meant: Sequence[Effect]) -> list[Counted]:
    """Return the number of jobs for each effect, however long it takes."""
    return _count(jobs, limits, meant, first=None)


def count_cheaply(
    jobs: QuerySet[Job],
    limits: Bounds,
    meant: Sequence[Effect],
    *,
    pool: QuerySet[Job],
    window: int,
    is_scan: bool,
) -> list[Counted]:
    """Return the number of jobs for each effect, without reading many rows.

    ``pool``: the jobs among which the filters have found ``jobs``. ``window``: how many of the jobs that wait
    are counted, if they are not all counted. ``is_scan``: whether the filters look into each job.
    """
    first = None
    if limits.newest is not None and (is_scan or _cost(jobs, limits, meant) > MOST_COST):
        live = pool.filter(shelf=LIVE_SHELF, pk__lte=limits.newest).order_by("-pk")
        end = list(live.values_list("pk", flat=True)[window - 1 : window + 1])
        first = end[0] if len(end) == 2 else None
    return _count(jobs, limits, meant, first=first)


def _cost(jobs: QuerySet[Job], limits: Bounds, meant: Sequence[Effect]) -> float:
    """Return what the planner expects the count of the waiting jobs to cost."""
    waiting = {place: effect for place, effect in enumerate(meant) if _is_waiting(effect)}
    if not waiting:
        return 0.0
    plan = _by_place(jobs, limits, waiting).explain(format="json")
    return float(json.loads(plan)[0]["Plan"]["Total Cost"]) if plan else 0.0  # no plan: Django asks nothing


def _count(
    jobs: QuerySet[Job], limits: Bounds, meant: Sequence[Effect], *, first: int | None
) -> list[Counted]:
    """Count the jobs. ``first``: the lowest id of the waiting jobs that are counted; None: all are."""
    is_cut = first is not None
    kinds: dict[str, dict[int, Effect]] = {}
    for place, effect in enumerate(meant):
        kind = "over" if effect.is_finished else "waiting" if _is_waiting(effect) else "running"
        kinds.setdefault(kind, {})[place] = effect
    parts = [
        _by_place(jobs.filter(pk__gte=first) if is_cut and kind == "waiting" else jobs, limits, placed)
        for kind, placed in kinds.items()
    ]
    numbers = dict(parts[0].union(*parts[1:], all=True)) if parts else {}
    return [
        Counted(numbers.get(place, 0), is_exact=not (is_cut and _is_waiting(effect)))
        for place, effect in enumerate(meant)
    ]


def _is_waiting(effect: Effect) -> bool:
    """Return whether the effect is about jobs that no index has all of."""
    return not effect.is_finished and effect.states != {Status.RUNNING}


def _by_place(jobs: QuerySet[Job], limits: Bounds, placed: dict[int, Effect]) -> QuerySet[Any, Any]:
    """Return a query for the number of jobs by the place of their effect."""
    [some] = affected(jobs, limits, list(placed.values()))
    cases = [When(effect.condition, then=Value(place)) for place, effect in placed.items()]
    place = Case(*cases, output_field=IntegerField())
    return some.order_by().values(place=place).annotate(number=Count("*")).values_list("place", "number")
