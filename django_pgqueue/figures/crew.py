"""The workers of a database: how many are in which state, how many jobs they run, and which queues they
serve.
"""

from __future__ import annotations

from typing import Any

from ..models import Worker
from ..vitals import Vital, vital, with_vitals

__all__ = ["Crew"]


class Crew:
    """The workers, each with its state in ``vital``, read in one statement."""

    def __init__(self, alias: str) -> None:
        self.workers: list[Any] = list(with_vitals(Worker.objects.using(alias)).order_by("host", "pid", "pk"))
        for worker in self.workers:
            worker.vital = vital(worker)

    def count(self, state: Vital) -> int:
        """Return how many workers are in a state."""
        return sum(worker.vital == state for worker in self.workers)

    def serving(self, queue: str) -> int:
        """Return how many workers claim jobs of a queue. Those that are silent or draining do not count."""
        return sum(worker.vital == Vital.RUNNING and _serves(worker, queue) for worker in self.workers)

    @property
    def slots(self) -> int:
        """How many jobs the workers that claim jobs can run at the same time."""
        return sum(worker.slots for worker in self.workers if worker.vital == Vital.RUNNING)

    @property
    def busy(self) -> int:
        """How many of these slots are in use. A worker may have claimed more short jobs than it has slots."""
        return sum(min(worker.busy, worker.slots) for worker in self.workers if worker.vital == Vital.RUNNING)


def _serves(worker: Worker, queue: str) -> bool:
    return queue in worker.queues if worker.queues else queue not in worker.exclude_queues
