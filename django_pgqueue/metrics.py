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
from typing import TYPE_CHECKING

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
    from collections.abc import Collection, Iterator, Sequence

    from prometheus_client.core import Metric

__all__ = ["PgQueueCollector", "registry"]

logger = get_logger(__name__)

PATIENCE = 1.0  # seconds that one statement may take
MOST = 200  # up to here, jobs are counted exactly: a scrape must be cheap
_CLASSES = [*(repr(round(bound, 3)) for bound in HISTOGRAM_BOUNDS), "+Inf"]


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
                page.add(alias, found, crew, every)
                is_up = 1
            except (Error, TimeLimitReached) as error:
                logger.warning("no metrics of the database %r: %s", alias, error or "it took too long")
                is_up = 0
            page.up.add_metric([alias], is_up)
            page.seconds.add_metric([alias], perf_counter() - began)
        yield from page.families()


def registry(databases: Collection[str] | None = None) -> CollectorRegistry:
    """Return a registry with these figures alone."""
    found = CollectorRegistry()
    found.register(PgQueueCollector(databases))
    return found


class _Page:
    """The families of one scrape, to which each database adds its samples."""

    def __init__(self) -> None:
        queue, task = ["database", "queue"], ["database", "queue", "task"]
        self.up = GaugeMetricFamily(
            "pgqueue_up", "Whether the database of the queue answered.", labels=["database"]
        )
        self.seconds = GaugeMetricFamily(
            "pgqueue_scrape_duration_seconds", "How long it took to read these figures.", labels=["database"]
        )
        self.jobs = GaugeMetricFamily(
            "pgqueue_jobs",
            f"Live jobs, by state. Counts above {MOST} are estimates.",
            labels=[*queue, "state"],
        )
        self.age = GaugeMetricFamily(
            "pgqueue_oldest_ready_age_seconds",
            "How long the oldest job that a worker may claim has been due; 0 if there is none.",
            labels=queue,
        )
        self.longest = GaugeMetricFamily(
            "pgqueue_longest_running_age_seconds",
            "How long the longest running job has been running; 0 if there is none.",
            labels=queue,
        )
        self.paused = GaugeMetricFamily(
            "pgqueue_queue_paused", "Whether the queue, or everything, is paused.", labels=queue
        )
        self.serving = GaugeMetricFamily(
            "pgqueue_queue_workers", "Worker processes that claim jobs of the queue.", labels=queue
        )
        self.workers = GaugeMetricFamily(
            "pgqueue_workers", "Worker processes, by state.", labels=["database", "state"]
        )
        self.slots = GaugeMetricFamily(
            "pgqueue_slots", "Jobs that the workers can run at the same time.", labels=["database"]
        )
        self.busy = GaugeMetricFamily("pgqueue_busy_slots", "Slots that are in use.", labels=["database"])
        self.attempts = CounterMetricFamily(
            "pgqueue_attempts", "Attempts that ended, by outcome.", labels=[*task, "outcome"]
        )
        self.waits = HistogramMetricFamily(
            "pgqueue_wait_seconds", "From the time when the job was due to its start.", labels=task
        )
        self.runs = HistogramMetricFamily(
            "pgqueue_run_seconds", "From the start of the attempt to its end.", labels=task
        )

    def families(self) -> list[Metric]:
        """Return them, in the order in which a reader looks for them."""
        return [
            self.up, self.seconds, self.jobs, self.age, self.longest, self.paused, self.serving, self.workers,
            self.slots, self.busy, self.attempts, self.waits, self.runs,
        ]  # fmt: skip

    def add(self, alias: str, found: dict[str, Depth], crew: Crew, every: Sequence[AttemptTotal]) -> None:
        """Add the samples of a database."""
        for name, depth in found.items():
            labels = [alias, name]
            for state in ("ready", "scheduled", "retrying", "running", "blocked"):
                self.jobs.add_metric([*labels, state], getattr(depth, state))
            self.age.add_metric(labels, depth.oldest_ready)
            self.longest.add_metric(labels, depth.longest_running)
            self.paused.add_metric(labels, int(depth.is_paused))
            self.serving.add_metric(labels, crew.serving(name))
        for vital in Vital:
            self.workers.add_metric([alias, vital.value], crew.count(vital))
        self.slots.add_metric([alias], crew.slots)
        self.busy.add_metric([alias], crew.busy)
        for total in every:
            labels = [alias, total.queue_name, total.task_path]
            for outcome, count in total.outcomes.items():
                self.attempts.add_metric([*labels, outcome], count)
            for family, histogram, seconds in (
                (self.waits, total.wait_histogram, total.wait_seconds),
                (self.runs, total.run_histogram, total.run_seconds),
            ):
                family.add_metric(
                    labels, list(zip(_CLASSES, accumulate(histogram), strict=True)), sum_value=seconds
                )
