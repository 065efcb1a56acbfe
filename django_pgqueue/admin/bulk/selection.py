"""The jobs that an action selects, described so that the same jobs are found again after the confirmation.

Selected rows are described by their ids. All jobs that match the filters of a list are described by bounds:
jobs up to the newest one at the time of the count, and, among the finished jobs, the last ``MOST_FINISHED``.
In both cases, a job that ended after the count does not count as finished: the page did not show that it was
done, so the user has not confirmed that it runs a second time.

All jobs that match are counted twice, as a list is read: at first only as far as ``FIRST_LOOK`` allows, so
that the page comes at once, and then, when its script or a button asks for it, up to ``MOST_COUNTED``.

The bounds cannot exclude a job whose transaction had taken its id but was not committed at the time of the
count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial, reduce
from operator import or_
from time import monotonic
from typing import Any

from django.core.exceptions import EmptyResultSet
from django.db.models import Case, QuerySet, When
from django.db.models.functions import Now

from ...models import Job
from ...monitoring.depth import Counted
from ...postgres import fetch_rows
from ...postgres.clock import server_now
from ...postgres.timeout import time_limit, within
from ..jobs.filters import LIVE_SHELF, on_shelves
from .actions import Effect

MOST_FINISHED = 60_000  # jobs
MOST_COUNTED = 100_000  # jobs for each effect; beyond it, the page says "100,000+"
SECONDS = 3.0  # for each statement that counts
FIRST_LOOK = 0.04  # seconds, for all statements of the first count together
FIRST_COUNTED = (100, 10_000)  # live jobs, and as many finished ones, as long as that time lasts


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What the confirmation page has shown, as stored in its form: the bounds, and what would change."""

    as_of: str  # when the jobs were counted, on the clock of the database, in ISO format
    newest: int | None = None  # the highest id at that time; None for selected rows
    oldest: int | None = None
    """The lowest id of the finished jobs that are meant; None if there are no older ones."""
    action: str = ""
    effects: list[str] = field(default_factory=list)  # the kinds of jobs that would change
    counted: int = 0  # how many jobs would change, or more if this is not exact
    is_exact: bool = True
    meaning: str = ""  # what the search term was (``search.meaning_of``); "" if there was none

    @property
    def expected(self) -> int | None:
        """How many jobs would change; None if that is not known."""
        return self.counted if self.is_exact else None


def bounds(pool: QuerySet[Job], *, across: bool) -> Shown:
    """Return the current bounds in the jobs that the list reads. ``across``: whether all jobs that match are
    selected, or single rows.
    """
    pool = pool.order_by("-pk")
    newest, now = pool.values_list("pk", Now()).first() or (0, server_now(pool.db))
    if not across:
        return Shown(as_of=now.isoformat())
    over = pool.filter(pk__lte=newest, shelf__gt=LIVE_SHELF).values_list("pk", flat=True)
    end = list(over[MOST_FINISHED - 1 : MOST_FINISHED + 1])
    oldest = end[0] if len(end) == 2 else None
    return Shown(as_of=now.isoformat(), newest=newest, oldest=oldest)


def affected(jobs: QuerySet[Job], limits: Shown, meant: Sequence[Effect]) -> list[QuerySet[Job]]:
    """Return the jobs of these effects, in one queryset for live jobs and one for finished jobs."""
    parts = []
    live = [effect for effect in meant if not effect.is_finished]
    over = [effect for effect in meant if effect.is_finished]
    if limits.newest is not None:
        jobs = jobs.filter(pk__lte=limits.newest)
    if live:
        parts.append(jobs.filter(reduce(or_, (effect.condition for effect in live)), shelf=LIVE_SHELF))
    if over:
        ended = jobs.filter(
            reduce(or_, (effect.condition for effect in over)),
            shelf__gt=LIVE_SHELF,
            finished_at__lte=datetime.fromisoformat(limits.as_of),
        )
        statuses = {status for effect in over for status in effect.states}
        if len(statuses) == 1:
            ended = on_shelves(statuses.pop(), ended)
        if limits.oldest is not None:
            ended = ended.filter(pk__gte=limits.oldest)
        parts.append(ended)
    return parts


def glance(jobs: QuerySet[Job], limits: Shown, meant: Sequence[Effect]) -> list[Counted]:
    """Return the number of jobs for each effect, as far as it is found in ``FIRST_LOOK``: "?" for none."""
    kind = Case(*(When(effect.condition, then=place) for place, effect in enumerate(meant)))
    parts = [
        part.order_by().annotate(pgqueue_kind=kind).values_list("pgqueue_kind")
        for part in affected(jobs, limits, meant)
    ]
    until, found = monotonic() + FIRST_LOOK, [Counted(0, is_exact=False)] * len(meant)
    with time_limit(jobs.db, SECONDS):  # of which the ones below are parts
        for most in FIRST_COUNTED:
            left = until - monotonic()
            numbers = within(jobs.db, left, partial(_by_kind, parts, most)) if left > 0 else None
            if numbers is None:
                break
            for is_over in (False, True):
                places = [place for place, effect in enumerate(meant) if effect.is_finished == is_over]
                is_exact = sum(numbers[place] for place in places) <= most
                for place in places:
                    found[place] = Counted(min(numbers[place], most), is_exact)
            if all(each.is_exact for each in found):
                break
    return found


def _by_kind(parts: Sequence[QuerySet[Any, Any]], most: int) -> Counter[int]:
    """Return how many of the first jobs of the parts are of each kind. One more than ``most`` are read."""
    first, *others = [part[: most + 1] for part in parts]
    try:
        query, alias = first.union(*others, all=True).query, first.db
        statement, parameters = query.get_compiler(alias).as_sql()
    except EmptyResultSet:  # the search cannot find anything
        return Counter()
    sql = f"SELECT kind, count(*) FROM ({statement}) AS found (kind) GROUP BY kind"  # noqa: S608 - from Django
    return Counter(dict(fetch_rows(alias, sql, parameters)))


def count(jobs: QuerySet[Job], limits: Shown, meant: Sequence[Effect]) -> list[Counted]:
    """Return the number of jobs for each effect, or what a glance finds, if the count takes too long.

    A job that ends between two statements is counted once: it had not finished when the bounds were read.
    """
    parts = [affected(jobs, limits, [effect])[0].order_by()[: MOST_COUNTED + 1] for effect in meant]
    numbers = within(jobs.db, SECONDS, lambda: [part.count() for part in parts])
    if numbers is None:
        return glance(jobs, limits, meant)
    return [Counted(min(number, MOST_COUNTED), number <= MOST_COUNTED) for number in numbers]
