"""``run``: the task that carries out an action of the admin on many jobs, in the background.

Each chunk of jobs is an atomic step: it changes its jobs and records how far the walk is in one transaction.
So the job continues where it was if its worker dies, or if it is cancelled and retried, and changes nothing
twice. Between two chunks, it looks whether it was cancelled, and whether the user may still do this.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from django.contrib.auth import get_user_model
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext as _
from django.utils.translation import ngettext_lazy

from ... import formatting
from ...exceptions import CancelJob
from ...jobs.current import current_job
from ...models import Job, LiveJob
from ...models.current import CurrentJob
from ...postgres.timeout import TimeLimitReached, time_limit
from ...tasks.decorator import task
from ..history import action_words, is_noted, note
from ..jobs.search import MEANING
from .order import Order, Refused
from .selection import affected, count_all

if TYPE_CHECKING:
    from .actions import Action

COUNT_SECONDS = 60.0


@task(priority=100, max_attempts=5, backoff=(1, 5, 15), timeout=3600)
def run(order: dict[str, Any], seal: str) -> dict[str, Any]:
    """Run an action of the admin on many jobs. Return how many have changed, also in words."""
    job = current_job()
    try:
        opened = Order.opened(order, seal, str(job._state.db))
    except Refused as refused:
        raise CancelJob(str(refused)) from None
    return _Work(job, opened).run()


def meaning_in(request: HttpRequest) -> str:
    """Return what the search term of a list was, after the list was read."""
    return str(getattr(request, MEANING, ""))


class _Work:
    """One attempt to carry out an order."""

    def __init__(self, job: CurrentJob, order: Order) -> None:
        self._job = job
        self._order = order
        self._alias = str(job._state.db)
        self._changed = 0
        self._total = order.counted if order.is_exact else None

    def run(self) -> dict[str, Any]:
        try:
            jobs, parts = self._select()
            if self._total is None:
                self._total = self._job.step("count", partial(self._count, jobs))
            self._walk(parts)
        except Refused as refused:
            self._stop(str(refused))
        words = told(self._order.kind, self._changed, self._total)
        self._job.atomic_step("ended", self._note, _("Ended."), words)
        return {"changed": self._changed, "of": self._total, "words": words}

    def _select(self) -> tuple[QuerySet[Job], Sequence[QuerySet[Job]]]:
        """Return the jobs of the list, and those of them that change, but never the job that runs here."""
        request = self._order.request()
        if not is_noted(self._order.user, self._job):  # a user has enqueued a copy of the job
            raise Refused(_("This user has not started this job. Select the jobs again."))
        jobs = self._order.jobs(request, self._alias).exclude(pk=self._job.pk)
        return jobs, affected(jobs, self._order.limits, self._order.acting(request))

    def _count(self, jobs: QuerySet[Job]) -> int | None:
        """Return how many jobs would change; None if it takes too long to count them."""
        acting = [effect for effect in self._order.kind.effects if effect.key in self._order.effects]
        try:
            with time_limit(self._alias, COUNT_SECONDS):
                return sum(count.number for count in count_all(jobs, self._order.limits, acting))
        except TimeLimitReached:
            return None

    def _walk(self, parts: Sequence[QuerySet[Job]]) -> None:
        change: Any = partial(self._order.kind.run, **self._order.arguments)
        place, number = Cursor(), 0
        while True:
            self._job.set_progress(self._changed, self._bound, str(self._order.kind.title))
            if self._is_cancelled():
                self._stop(_("Cancelled."))
            self._order.request()  # the user may have lost the permission
            chunk = partial(take, parts, place, size_of(number), change)
            found = self._job.atomic_step(f"chunk {number + 1}", chunk)
            if found is None:
                return
            place, number = Cursor(*found[0]), number + 1
            self._changed += found[1]

    def _is_cancelled(self) -> bool:
        """Ask the database, which knows it in every kind of worker."""
        live: Any = LiveJob
        asked = live.objects.using(self._alias).filter(pk=self._job.pk, cancel_requested_at__isnull=False)
        return self._job.cancel_requested or bool(asked.exists())

    @property
    def _bound(self) -> int | None:
        """The total for the progress: others may have changed, so that there are more than were counted."""
        return None if self._total is None else max(self._total, self._changed)

    def _stop(self, why: str) -> None:
        words = told(self._order.kind, self._changed, self._total, whole=False)
        self._note(why, words)
        raise CancelJob(f"{why} {words}")

    def _note(self, what: str, words: str) -> None:
        order = self._order
        if get_user_model()._default_manager.filter(pk=order.user).exists():
            row = Job(pk=self._job.pk, task_path=self._job.task_path)
            note(order.user, f"{what} {action_words(order.kind.label, order.details)} {words}", row)


# ----------------------------------------------------------------------------
# The way of an action through many jobs: in chunks, each in a transaction, in the order of the ids.
#
# The place of a walk is the part that it is in (the jobs that are not over, then those that are over; see
# ``selection.affected``) and the last id that it has reached there. Behind this place nothing changes twice:
# not even a job that has changed back in the meantime.

FIRST_SIZE = 500
MOST = 12_000
_GROWS_AFTER = 10  # chunks


class Cursor(NamedTuple):
    """How far a walk has come."""

    part: int = 0
    after: int = 0


class Chunk(NamedTuple):
    """What a walk did, and where it is now."""

    place: Cursor
    changed: int


def size_of(number: int) -> int:
    """Return how many jobs are in the chunk with this number, from 0.

    Small chunks hold few locks, and stop soon. They grow because each one is a step of a job, which may have
    1,000: these are enough for 11 million jobs.
    """
    return int(min(FIRST_SIZE << number // _GROWS_AFTER, MOST))


def take(
    parts: Sequence[QuerySet[Job]], place: Cursor, size: int, change: Callable[[QuerySet[Job]], int]
) -> Chunk | None:
    """Change the next jobs, and return where the walk is then; None at its end. Call it in a transaction.

    Race: a job changes its state while it is read. The statement that finds it waits for that, and leaves it
    out if it no longer matches. Then its row is locked, so that ``change`` sees it as it was found. All who
    lock several jobs do so in the order of their ids, so that no two walks wait for each other.
    """
    part, after = place
    while part < len(parts):
        rest: Any = parts[part].filter(pk__gt=after).order_by("pk").select_for_update()
        found = dict(rest.values_list("pk", "shelf")[:size])
        if found:
            shelves = sorted(set(found.values()))  # so that the plan leaves out the other leaves
            jobs = Job.objects.using(rest.db).filter(pk__in=list(found), shelf__in=shelves)
            return Chunk(Cursor(part, max(found)), change(jobs))
        part, after = part + 1, 0
    return None


# ----------------------------------------------------------------------------
# What a user is told when an action on jobs is over: how many jobs changed, and why others did not.

_OTHERS_TO_RETRY = ngettext_lazy(
    "%(number)s other was left alone: it changed in the meantime, or another job has its unique key.",
    "%(number)s others were left alone: they changed in the meantime, or other jobs have their unique keys.",
    "count",
)
_OTHERS = ngettext_lazy(
    "%(number)s other changed in the meantime and was left alone.",
    "%(number)s others changed in the meantime and were left alone.",
    "count",
)


def told(
    action: Action, changed: int, expected: int | None, *, denied: bool = False, whole: bool = True
) -> str:
    """Return the message about the jobs that changed, and about those that were shown but did not change.

    ``expected``: how many jobs would change; None if it is not known. ``denied``: some jobs did not change
    because this user may not run them again. ``whole``: whether all of them were reached.
    """
    if not changed and expected and whole and action.permission == "retry":
        return _("No job changed: all of them changed in the meantime, or other jobs have their unique keys.")
    if not changed and expected and whole:
        return _("No job changed: all of them changed in the meantime.")
    if not changed and denied:
        return _("No job changed: you may not run done jobs again.")
    if not changed and not whole:
        return _("No job changed.")
    words = action.outcome(changed)
    left = (expected or 0) - changed
    if changed and left > 0 and whole:
        others = _OTHERS_TO_RETRY if action.permission == "retry" else _OTHERS
        words += " " + str(others % {"count": left, "number": formatting.number(left)})
    return words
