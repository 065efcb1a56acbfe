"""The jobs that an action selects, described so that the same jobs are found again after the confirmation.

Selected rows are described by their ids. All jobs that match the filters of a list are described by bounds:
jobs up to the newest one at the time of the count, and, among the finished jobs, the last ``MOST_FINISHED``.
In both cases, a job that ended after the count does not count as over: the page did not show that it was
done, so the user has not confirmed that it runs a second time.

The bounds cannot exclude a job whose transaction had taken its id but was not committed at the time of the
count.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import reduce
from operator import or_

from django.db.models import QuerySet
from django.db.models.functions import Now

from ...models import Job
from ...postgres.clock import server_now
from ...postgres.timeout import within
from ..jobs.filters import LIVE_SHELF, on_shelves
from .actions import Counted, Effect

MOST_FINISHED = 60_000  # jobs
MOST_COUNTED = 100_000  # jobs for each effect; beyond it, the page says "100,000+"
SECONDS = 3.0  # for each statement that counts


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


def count(jobs: QuerySet[Job], limits: Shown, meant: Sequence[Effect]) -> list[Counted]:
    """Return the number of jobs for each effect: "?" if the database takes too long to count them.

    A job that ends between two statements is counted once: it was not over when the bounds were read.
    """
    parts = [affected(jobs, limits, [effect])[0].order_by()[: MOST_COUNTED + 1] for effect in meant]
    numbers = within(jobs.db, SECONDS, lambda: [part.count() for part in parts])
    if numbers is None:
        return [Counted(0, is_exact=False) for _effect in meant]
    return [Counted(min(number, MOST_COUNTED), number <= MOST_COUNTED) for number in numbers]
