"""How many jobs an action would change: exactly if that is cheap to count, otherwise "so many or more".

Jobs that are over are within the bounds of ``selection``, so one pass over these counts them all. Running
jobs have an index. All other jobs are counted in one pass, too, if the planner expects it to cost no more
than ``MOST_COST``: an index supports the filters, or there are not many jobs. Otherwise only the newest ones
are counted. The planner does not know what a search for text costs, so its jobs are always counted in a
window.

All kinds of jobs are counted in one statement, so that a job that ends meanwhile is counted once.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from django.db.models import Case, Count, IntegerField, Value, When

from ...models.job import Status
from ..jobs.filters import LIVE_SHELF
from .selection import affected

if TYPE_CHECKING:
    from collections.abc import Sequence

    from django.db.models import QuerySet

    from ...models import Job
    from .effects import Effect
    from .selection import Bounds

__all__ = ["MOST_COST", "Counted", "count_all", "count_cheaply"]

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
        kind = "over" if effect.is_over else "waiting" if _is_waiting(effect) else "running"
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
    return not effect.is_over and effect.states != {Status.RUNNING}


def _by_place(jobs: QuerySet[Job], limits: Bounds, placed: dict[int, Effect]) -> QuerySet[Any, Any]:
    """Return a query for the number of jobs by the place of their effect."""
    [some] = affected(jobs, limits, list(placed.values()))
    cases = [When(effect.condition, then=Value(place)) for place, effect in placed.items()]
    place = Case(*cases, output_field=IntegerField())
    return some.order_by().values(place=place).annotate(number=Count("*")).values_list("place", "number")
