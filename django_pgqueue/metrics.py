"""The figures of the queues for Prometheus: a collector for ``prometheus_client``.

All figures are read from the database at each scrape, so it does not matter which process is asked, or how
many there are: scrape one of them. Counters and histograms come from totals that only grow
(``monitoring.spans``).

A database that does not answer within a second has ``pgqueue_up`` 0 and no other figures. Those of the other
databases are not affected.
"""

from __future__ import annotations

from itertools import accumulate
from time import perf_counter
from typing import TYPE_CHECKING, Any

from django.db import Error
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from .checks.tasks import queue_databases
from .formatting import get_logger
from .models import Queue
from .models.statistics import HISTOGRAM_BOUNDS
from .monitoring.queues import Depth, depths
from .monitoring.spans import AttemptTotal, totals
from .monitoring.workers import Crew, Vital
from .postgres.timeout import TimeLimitReached, time_limit

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from prometheus_client.core import Metric

__all__ = ["PgQueueCollector", "registry"]

logger = get_logger(__name__)

PATIENCE = 1.0  # seconds that one statement may take
MOST = 200  # up to here, jobs are counted exactly: a scrape must be cheap
_CLASSES = [*(repr(round(bound, 3)) for bound in HISTOGRAM_BOUNDS), "+Inf"]


#: Class, help and labels after ``database``, by name.
_FAMILIES: dict[str, tuple[Any, str, tuple[str, ...]]] = {
    "up": (GaugeMetricFamily, "Whether the database of the queue answered.", ()),
    "scrape_duration_seconds": (GaugeMetricFamily, "How long it took to read these figures.", ()),
    "jobs": (
        GaugeMetricFamily,
        f"Live jobs, by state. Counts above {MOST} are estimates.",
        ("queue", "state"),
    ),
    "oldest_ready_age_seconds": (
        GaugeMetricFamily,
        "How long the oldest job that a worker may claim has been due; 0 if there is none.",
        ("queue",),
    ),
    "longest_running_age_seconds": (
        GaugeMetricFamily,
        "How long the longest running job has been running; 0 if there is none.",
        ("queue",),
    ),
    "queue_paused": (GaugeMetricFamily, "Whether the queue, or everything, is paused.", ("queue",)),
    "queue_workers": (GaugeMetricFamily, "Worker processes that claim jobs of the queue.", ("queue",)),
    "workers": (GaugeMetricFamily, "Worker processes, by state.", ("state",)),
    "slots": (GaugeMetricFamily, "Jobs that the workers can run at the same time.", ()),
    "busy_slots": (GaugeMetricFamily, "Slots that are in use.", ()),
    "attempts": (CounterMetricFamily, "Attempts that ended, by outcome.", ("queue", "task", "outcome")),
    "wait_seconds": (
        HistogramMetricFamily,
        "From the time when the job was due to its start.",
        ("queue", "task"),
    ),
    "run_seconds": (
        HistogramMetricFamily,
        "From the start of the attempt to its end.",
        ("queue", "task"),
    ),
}


class PgQueueCollector(Collector):
    """Yields the figures of these databases; by default, of all that jobs go to.

    Register it in a registry of its own (``registry``), or with those of your project.
    """

    def __init__(self, databases: Collection[str] | None = None) -> None:
        self._databases = databases

    def describe(self) -> list[Metric]:
        """Return nothing, so that registering it reads no database."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Read all databases."""
        page = _Page()
        for alias in sorted(queue_databases() if self._databases is None else self._databases):
            began = perf_counter()
            try:
                with time_limit(alias, PATIENCE):
                    every, crew = totals(alias), Crew(alias)
                    # Queues without live jobs have zeros: their series must not end.
                    names = {*Queue.objects.using(alias).values_list("pk", flat=True)}
                    found = depths(alias, names.union(total.queue_name for total in every), MOST)
                page.add_database(alias, found, crew, every)
                is_up = 1
            except (Error, TimeLimitReached) as error:
                logger.warning("no metrics of the database %r: %s", alias, error or "it took too long")
                is_up = 0
            page.add("up", [alias], is_up)
            page.add("scrape_duration_seconds", [alias], perf_counter() - began)
        yield from page.families()


def registry(databases: Collection[str] | None = None) -> CollectorRegistry:
    """Return a registry with these figures alone."""
    found = CollectorRegistry()
    found.register(PgQueueCollector(databases))
    return found


class _Page:
    """The families of one scrape, to which each database adds its samples."""

    def __init__(self) -> None:
        self._families = {
            name: family(f"pgqueue_{name}", text, labels=["database", *labels])
            for name, (family, text, labels) in _FAMILIES.items()
        }

    def families(self) -> Iterable[Metric]:
        """Return them, in the order in which a reader looks for them."""
        return self._families.values()

    def add(self, name: str, labels: Sequence[str], value: float) -> None:
        """Add a sample."""
        self._families[name].add_metric(labels, value)

    def add_database(
        self, alias: str, found: dict[str, Depth], crew: Crew, every: Sequence[AttemptTotal]
    ) -> None:
        """Add the samples of a database."""
        for name, depth in found.items():
            labels = [alias, name]
            for state in ("ready", "scheduled", "retrying", "running", "blocked"):
                self.add("jobs", [*labels, state], getattr(depth, state))
            self.add("oldest_ready_age_seconds", labels, depth.oldest_ready)
            self.add("longest_running_age_seconds", labels, depth.longest_running)
            self.add("queue_paused", labels, int(depth.is_paused))
            self.add("queue_workers", labels, crew.serving(name))
        for vital in Vital:
            self.add("workers", [alias, vital.value], crew.count(vital))
        self.add("slots", [alias], crew.slots)
        self.add("busy_slots", [alias], crew.busy)
        for total in every:
            labels = [alias, total.queue_name, total.task_path]
            for outcome, count in total.outcomes.items():
                self.add("attempts", [*labels, outcome], count)
            self._add_histogram("wait_seconds", labels, total.wait_histogram, total.wait_seconds)
            self._add_histogram("run_seconds", labels, total.run_histogram, total.run_seconds)

    def _add_histogram(self, name: str, labels: list[str], counts: list[int], seconds: float) -> None:
        buckets = list(zip(_CLASSES, accumulate(counts), strict=True))
        self._families[name].add_metric(labels, buckets, sum_value=seconds)
