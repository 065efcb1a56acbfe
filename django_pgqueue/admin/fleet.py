"""The workers as the clock of the database sees them: who lives, is silent or dead, who serves a queue.

The row of a worker says "running" until another supervisor recovers its jobs and deletes the row. After an
outage of everything there is no such supervisor, so the state that is shown comes from the last heartbeat.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from django.db.models import (
    Count,
    DurationField,
    ExpressionWrapper,
    F,
    IntegerField,
    OuterRef,
    Subquery,
    TextChoices,
)
from django.db.models.functions import Coalesce, Now
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from .. import conf
from ..models import LiveJob, Worker
from . import display

if TYPE_CHECKING:
    from django.db.models import QuerySet

__all__ = ["Attendance", "Fleet", "Vital", "busy_text", "listed", "queues_text", "vital", "with_vitals"]

MISSED_BEATS = 2.5  # from here on pgqueue_dead_workers_v1 asks whether a worker is dead


class Vital(TextChoices):
    """How a worker is."""

    RUNNING = "running", gettext_lazy("running")
    DRAINING = "draining", gettext_lazy("draining")
    SILENT = "silent", gettext_lazy("silent")
    DEAD = "dead", gettext_lazy("dead")


def with_vitals(workers: QuerySet[Worker]) -> QuerySet[Any]:
    """The workers, each with the ``age`` of its heartbeat on the database's clock, and its ``busy`` slots."""
    running = LiveJob.objects.filter(status="running", worker=OuterRef("pk")).order_by()  # type: ignore[attr-defined]
    busy = Subquery(running.values("worker").annotate(n=Count("pk")).values("n"), output_field=IntegerField())
    rows: QuerySet[Any] = _with_age(workers).annotate(busy=Coalesce(busy, 0))
    return rows


def _with_age(workers: QuerySet[Worker]) -> QuerySet[Any]:
    age = ExpressionWrapper(Now() - F("heartbeat_at"), output_field=DurationField())
    return workers.annotate(age=age)


def vital(worker: Any) -> Vital:
    """How a worker ``with_vitals`` is, whatever its row says.

    It is dead if its last heartbeat is older than ``LEASE``, and silent if it has missed two heartbeats.
    """
    age: float = worker.age.total_seconds()
    settings = conf.current()
    if age > settings.lease:
        return Vital.DEAD
    return Vital.SILENT if age > MISSED_BEATS * settings.heartbeat else Vital(worker.state)


def listed() -> QuerySet[Worker]:
    """The workers that are on the list and not dead, for a condition on jobs: the others have lost theirs."""
    lease = timedelta(seconds=conf.current().lease)
    return Worker.objects.filter(heartbeat_at__gte=Now() - lease)


def queues_text(worker: Worker) -> str:
    """The queues that a worker serves, in words: "all", "all but never", "mail, slow"."""
    if worker.queues:
        return ", ".join(worker.queues)
    if worker.exclude_queues:
        return _("all but %(queues)s") % {"queues": ", ".join(worker.exclude_queues)}
    return _("all")


def busy_text(worker: Any) -> str:
    """How many jobs a worker ``with_vitals`` runs, of how many it may run at once. It may have claimed more
    than that, if they are short: these wait in its memory.
    """
    ahead = worker.busy - worker.slots
    text = _("%(busy)d of %(slots)d") % {"busy": min(worker.busy, worker.slots), "slots": worker.slots}
    return text if ahead <= 0 else _("%(text)s, %(count)d claimed ahead") % {"text": text, "count": ahead}


@dataclass(frozen=True, slots=True)
class Attendance:
    """The workers of one queue, without those that are dead or take no more jobs."""

    alive: int
    silent: int

    def __str__(self) -> str:
        if self.alive or not self.silent:
            return display.number(self.alive) if self.alive else _("none")
        return _("%(count)d silent") % {"count": self.silent}


class Fleet:
    """All workers of a database, each with its ``vital``."""

    def __init__(self, alias: str, *, busy: bool = False) -> None:
        """Read them in one statement; with ``busy`` also how many jobs each one runs."""
        workers = Worker.objects.using(alias).order_by("host", "pid", "pk")
        self.workers: list[Any] = list(with_vitals(workers) if busy else _with_age(workers))
        for worker in self.workers:
            worker.vital = vital(worker)

    def of(self, queue: str) -> Attendance:
        """Who works on a queue."""
        vitals = [worker.vital for worker in self.workers if _serves(worker, queue)]
        return Attendance(vitals.count(Vital.RUNNING), vitals.count(Vital.SILENT))

    @property
    def trouble(self) -> str:
        """Why nobody takes jobs, as a sentence to say where jobs wait; empty if somebody does."""
        vitals = {worker.vital for worker in self.workers}
        if Vital.RUNNING in vitals:
            return ""
        if Vital.SILENT in vitals:
            age = min(worker.age for worker in self.workers if worker.vital == Vital.SILENT)
            return _("Jobs wait, and no worker has sent a heartbeat for %(period)s.") % {
                "period": display.period(age)
            }
        if Vital.DRAINING in vitals:
            return _("Jobs wait, and all workers are stopping.")
        return _("Jobs wait, and no worker is alive. Start one: manage.py runqueueworker")


def _serves(worker: Worker, queue: str) -> bool:
    return queue in worker.queues if worker.queues else queue not in worker.exclude_queues
