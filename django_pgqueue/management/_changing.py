"""Change many jobs from the command line: count them, ask, and go through them in chunks.

The jobs are those that exist and are in the chosen states when they are counted. A job that gets there later
is left alone: it has a higher id, or it ended after the count. Otherwise a job that fails again at once would
be retried again and again.

Each chunk is one transaction that is committed before the next one begins. So no lock is held for long, and
what has been done stays done if somebody presses Ctrl-C.
"""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.db import transaction
from django.db.models import Count, Q
from django.db.models.functions import Now

from ..models import Job
from ..time_limit import time_limit
from ._job_filters import LIVE_SHELF

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from django.db.models import QuerySet

__all__ = ["CHUNK", "Bounded", "Done", "bounded", "change", "change_each", "interruptible"]

CHUNK = 500  # jobs in one transaction
PATIENCE = 30.0  # seconds that the count may take


@dataclass(frozen=True, slots=True)
class Bounded:
    """The jobs of a queryset at one moment, and how many they were in each state."""

    jobs: QuerySet[Job]
    counts: dict[str, int]

    @property
    def count(self) -> int:
        """How many jobs they were."""
        return sum(self.counts.values())


@dataclass(slots=True)
class Done:
    """How far a change has come."""

    matched: int
    """How many jobs are meant."""
    tried: int = 0
    changed: int = 0
    is_over: bool = False

    @property
    def left_alone(self) -> int:
        """How many jobs were tried and did not change."""
        return max(0, self.tried - self.changed)


def bounded(jobs: QuerySet[Job]) -> Bounded:
    """Count the jobs exactly, and bound them to those of now. Raise ``TimeLimitReached``."""
    alias = jobs.db
    with time_limit(alias, PATIENCE):
        newest = jobs.order_by("-pk").values_list("pk", Now()).first()
        if newest is None:
            return Bounded(jobs.none(), {})
        last, now = newest
        is_meant = Q(shelf=LIVE_SHELF) | Q(finished_at__lte=now)
        meant = jobs.filter(is_meant, pk__lte=last)
        counts = meant.order_by("status").values_list("status").annotate(number=Count("pk"))
        return Bounded(meant, dict(counts))


def change(run: Callable[[Any], int], meant: Bounded) -> Iterator[Done]:
    """Run a change on the jobs, a chunk after the other. Yield after each chunk.

    Race: a job changes its state after it was counted, or while a chunk waits for its row. Each chunk applies
    the conditions again to the rows that it has locked, so such a job does not change.
    """
    done, last = Done(meant.count), 0
    while True:
        with transaction.atomic(using=meant.jobs.db):
            rows = meant.jobs.filter(pk__gt=last).order_by("pk")
            ids = list(rows.values_list("pk", flat=True)[:CHUNK])
            if not ids:
                break
            done.changed += run(meant.jobs.filter(pk__in=ids).order_by("pk").select_for_update())
        done.tried += len(ids)
        last = ids[-1]
        yield done
    # Those that had left their state before their chunk came were tried, too.
    done.tried, done.is_over = max(done.tried, meant.count), True
    yield done


def change_each(run: Callable[[Any], int], seen: Sequence[Job]) -> Iterator[tuple[Job, bool]]:
    """Run a change on single jobs. Yield each of them, and whether it changed.

    Race: a job that waits may be done when its turn comes, and must not run a second time. So a job changes
    only if it is as it was seen: not over, or over in the same way.
    """
    for job in seen:
        alias = job._state.db
        is_same = Q(shelf__gt=LIVE_SHELF, status=job.status) if job.is_over else Q(shelf=LIVE_SHELF)
        with transaction.atomic(using=alias):
            has_changed = bool(run(Job.objects.using(alias).filter(is_same, pk=job.pk).select_for_update()))
        yield job, has_changed


class Interruption:
    """Whether somebody has asked the command to stop."""

    is_asked = False


@contextmanager
def interruptible() -> Iterator[Interruption]:
    """Let the first Ctrl-C set a flag, so that the current chunk ends. The second one interrupts."""
    asked = Interruption()
    if threading.current_thread() is not threading.main_thread():
        yield asked
        return

    def ask(*_: object) -> None:
        asked.is_asked = True
        signal.signal(signal.SIGINT, before)

    before = signal.signal(signal.SIGINT, ask)
    try:
        yield asked
    finally:
        signal.signal(signal.SIGINT, before)
