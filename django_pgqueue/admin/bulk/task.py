"""``run``: the task that carries out an action of the admin on many jobs, in the background.

Each chunk of jobs is an atomic step: it changes its jobs and records how far the walk is in one transaction.
So the job continues where it was if its worker dies, or if it is cancelled and retried, and changes nothing
twice. Between two chunks, it looks whether it was cancelled, and whether the user may still do this.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from django.contrib.auth import get_user_model
from django.utils.translation import gettext as _

from ...decorator import task
from ...exceptions import CancelJob
from ...lifecycle.current import current_job
from ...models import Job, LiveJob
from ...time_limit import TimeLimitReached, time_limit
from ..history import action_words, is_noted, note
from ..jobs.search import MEANING
from .counting import count_all
from .order import Order, Refused
from .outcome import told
from .selection import affected
from .walk import Place, size_of, take

if TYPE_CHECKING:
    from collections.abc import Sequence

    from django.db.models import QuerySet
    from django.http import HttpRequest

    from ...models.current import CurrentJob

__all__ = ["meaning_in", "run"]

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
        if not is_noted(self._order.user, self._job):  # somebody has enqueued a copy of the job
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
        place, number = Place(), 0
        while True:
            self._job.progress(self._changed, self._bound, str(self._order.kind.title))
            if self._is_cancelled():
                self._stop(_("Cancelled."))
            self._order.request()  # the user may have lost the permission
            chunk = partial(take, parts, place, size_of(number), change)
            found = self._job.atomic_step(f"chunk {number + 1}", chunk)
            if found is None:
                return
            place, number = Place(*found[0]), number + 1
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
            note(order.user, f"{what} {action_words(order.kind, order.details)} {words}", row)
