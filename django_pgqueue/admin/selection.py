"""The jobs that an action is about, so fixed that they can be found again when somebody has confirmed it.

Rows that were ticked are fixed by their ids. All that the filters of a list find is fixed by bounds: jobs up
to the newest one at the time of the count, and of those that are over the last ``WINDOW``, as the list itself
looks at them. In both cases a job that came to be over after that time does not count as over: nobody was
told that it is done, and so nobody has confirmed that it runs a second time.

What the bounds do not see: a job whose transaction had taken its id but had not committed at the count.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

from django.core.exceptions import EmptyResultSet
from django.db import connections
from django.db.models import Q
from django.db.models.functions import Now
from django.utils import timezone

from . import changelist, effects
from .filters import LIVE_SHELF, on_shelves

if TYPE_CHECKING:
    from collections.abc import Sequence

    from django.db.models import QuerySet

    from ..models import Job
    from .effects import Effect

__all__ = ["Bounds", "affected", "bounds", "counts"]


@dataclass(frozen=True, slots=True)
class Bounds:
    """Which jobs were there, and which were over, when they were counted. It travels in a form."""

    as_of: str
    """The time on the clock of the database, in ISO format."""
    newest: int | None = None
    """The highest id; None for rows that were ticked."""
    oldest: int | None = None
    """The lowest id that was looked at among the jobs that are over, if there are older ones."""


def bounds(pool: QuerySet[Job], *, across: bool) -> Bounds:
    """The bounds as of now.

    ``pool`` is what the list looks at; ``across`` says whether all that match are meant, or rows that were
    ticked.
    """
    pool = pool.order_by("-pk")
    newest, now = pool.values_list("pk", Now()).first() or (0, timezone.now())
    if not across:
        return Bounds(now.isoformat())
    over = pool.filter(pk__lte=newest, shelf__gt=LIVE_SHELF).values_list("pk", flat=True)
    end = list(over[changelist.WINDOW - 1 : changelist.WINDOW + 1])
    return Bounds(now.isoformat(), newest, end[0] if len(end) == 2 else None)


def counts(jobs: QuerySet[Job], limits: Bounds, meant: Sequence[Effect]) -> list[int]:
    """How many jobs each effect is about, up to one more than ``MOST_COUNTED``; all in one snapshot."""
    found, parts, parameters = [0] * len(meant), [], []
    for place, effect in enumerate(meant):
        [some] = affected(jobs, limits, [effect])
        query = some.order_by("-pk").values("pk")[: effects.MOST_COUNTED + 1].query
        try:
            sql, given = query.get_compiler(jobs.db).as_sql()
        except EmptyResultSet:
            continue
        parts.append(f"SELECT {place}, count(*) FROM ({sql}) AS part_{place}")  # noqa: S608 - Django wrote it
        parameters += given
    if parts:
        with connections[jobs.db].cursor() as cursor:
            cursor.execute(" UNION ALL ".join(parts), parameters)
            for place, count in cursor.fetchall():
                found[place] = count
    return found


def affected(jobs: QuerySet[Job], limits: Bounds, meant: Sequence[Effect]) -> list[QuerySet[Job]]:
    """The jobs of these effects: those that are not over, and those that are, each if there are any."""
    parts = []
    live = [effect for effect in meant if not effect.is_over]
    over = [effect for effect in meant if effect.is_over]
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
    return reduce(or_, (Q(status__in=sorted(effect.states)) & effect.where for effect in meant))
