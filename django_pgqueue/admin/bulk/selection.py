"""The jobs that an action selects, described so that the same jobs are found again after the confirmation.

Selected rows are described by their ids. All jobs that match the filters of a list are described by bounds:
jobs up to the newest one at the time of the count, and, among the jobs that are over, the last ``WINDOW``
(for a search for text, as many as the list itself reads). In both cases, a job that ended after the count
does not count as over: the page did not show that it was done, so the user has not confirmed that it runs a
second time.

The bounds cannot exclude a job whose transaction had taken its id but was not committed at the time of the
count.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

from django.db.models import Q
from django.db.models.functions import Now

from ...server_time import server_now
from ..jobs.filters import LIVE_SHELF, on_shelves
from ..lists import changelist

if TYPE_CHECKING:
    from collections.abc import Sequence

    from django.db.models import QuerySet

    from ...models import Job
    from .effects import Effect

__all__ = ["Bounds", "affected", "bounds"]


@dataclass(frozen=True, slots=True)
class Bounds:
    """Which jobs existed, and which of them were over, when they were counted. Stored in a form."""

    as_of: str
    """The time on the clock of the database, in ISO format."""
    newest: int | None = None
    """The highest id; None for selected rows."""
    oldest: int | None = None
    """The lowest id of the jobs that are over and were counted; None if there are no older ones."""


def bounds(pool: QuerySet[Job], *, across: bool, window: int | None = None) -> Bounds:
    """Return the current bounds.

    ``pool``: the jobs that the list reads. ``across``: whether all jobs that match are selected, or single
    rows. ``window``: how many jobs that are over are within the bounds; None for ``WINDOW``.
    """
    pool = pool.order_by("-pk")
    newest, now = pool.values_list("pk", Now()).first() or (0, server_now(pool.db))
    if not across:
        return Bounds(now.isoformat())
    over = pool.filter(pk__lte=newest, shelf__gt=LIVE_SHELF).values_list("pk", flat=True)
    most = changelist.WINDOW if window is None else window
    end = list(over[most - 1 : most + 1])
    return Bounds(now.isoformat(), newest, end[0] if len(end) == 2 else None)


def affected(jobs: QuerySet[Job], limits: Bounds, meant: Sequence[Effect]) -> list[QuerySet[Job]]:
    """Return the jobs of these effects, in one queryset for live jobs and one for jobs that are over."""
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
    return reduce(or_, (effect.condition for effect in meant))
