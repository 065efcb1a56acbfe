"""The workers of a database, how the admin shows their states, and which of them serve a queue."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import pgettext

from ... import formatting
from ...models import Worker
from ...monitoring.workers import Vital, state_text, vital, with_age, with_vitals
from .. import display


def state_badge(worker: Any) -> str:
    """Format the state of a worker ``with_vitals``."""
    return display.badge(vital(worker), state_text(worker))


@dataclass(frozen=True, slots=True)
class Attendance:
    """The workers of one queue, without those that are dead or do not claim more jobs."""

    alive: int
    silent: int

    def __str__(self) -> str:
        if self.alive or not self.silent:
            return formatting.number(self.alive) if self.alive else pgettext("workers", "none")
        return _("%(count)d silent") % {"count": self.silent}


class Fleet:
    """All workers of a database, each with its state in ``vital``."""

    def __init__(self, alias: str, *, busy: bool = False) -> None:
        """Read the workers in one statement. ``busy``: also read how many jobs each one runs."""
        workers = Worker.objects.using(alias).order_by("host", "pid", "pk")
        self.workers: list[Any] = list(with_vitals(workers) if busy else with_age(workers))
        for worker in self.workers:
            worker.vital = vital(worker)

    def of(self, queue: str) -> Attendance:
        """Return the workers of a queue."""
        vitals = [worker.vital for worker in self.workers if _serves(worker, queue)]
        return Attendance(vitals.count(Vital.RUNNING), vitals.count(Vital.SILENT))

    def serving(self, queue: str) -> list[Any]:
        """Return the workers of a queue, also those that are dead or do not claim more jobs."""
        return [worker for worker in self.workers if _serves(worker, queue)]

    @property
    def trouble(self) -> str:
        """Why no worker claims jobs, as a sentence to show if jobs are waiting; empty if a worker does."""
        vitals = {worker.vital for worker in self.workers}
        if Vital.RUNNING in vitals:
            return ""
        if Vital.SILENT in vitals:
            age = min(worker.age for worker in self.workers if worker.vital == Vital.SILENT)
            return _("Jobs are waiting, and no worker has sent a heartbeat for %(period)s.") % {
                "period": formatting.period(age)
            }
        if Vital.DRAINING in vitals:
            return _("Jobs are waiting, and all workers are stopping.")
        return _("Jobs are waiting, and no worker is alive. Start one: manage.py runqueueworker")

    @property
    def standstill(self) -> str:
        """A sentence to show with schedules if no worker is there to run them; empty if one is. A worker in
        another language does not: it has no supervisor.
        """
        if any(worker.vital == Vital.RUNNING and worker.supervisor for worker in self.workers):
            return ""
        return _("Schedules stand still, because no worker is running. Start one: manage.py runqueueworker")


def _serves(worker: Worker, queue: str) -> bool:
    return queue in worker.queues if worker.queues else queue not in worker.exclude_queues
