"""The figures of the queues for Prometheus: a collector for ``prometheus_client``.

All figures are read from the database at each scrape, so it does not matter which process is asked, or how
many there are: scrape one of them. Counters and histograms come from totals that only grow
(``monitoring.spans``).

A database that does not answer within a second has ``pgqueue_up`` 0 and no other figures. The figures of the
other databases are not affected.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import accumulate
from time import monotonic, perf_counter
from typing import Any

from django.db import Error
from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily as Counter,
    GaugeMetricFamily as Gauge,
    HistogramMetricFamily as Histogram,
    Metric,
)
from prometheus_client.registry import Collector

from . import conf
from .checks.tasks import queue_databases
from .formatting import get_logger
from .models import Queue
from .models.statistics import HISTOGRAM_BOUNDS
from .monitoring.depth import STATES, Depth, Flow, depths, flows
from .monitoring.spans import OUTCOMES, totals
from .monitoring.workers import Crew, Vital, scale_hint
from .postgres.ask import SECONDS, ask_all
from .postgres.timeout import TimeLimitReached, time_limit, within

__all__ = ["PgQueueCollector", "registry"]

logger = get_logger(__name__)

PATIENCE = 1.0  # seconds that one statement may take
MOST = 200  # up to here, each scrape counts jobs itself: it must be cheap
_MOST_COUNTED = 2_000_000  # the same, if no worker has counted more; at most once in ``_COUNTED_FOR`` seconds
_COUNTED_FOR = 60.0
_CLASSES = [*(repr(round(bound, 3)) for bound in HISTOGRAM_BOUNDS), "+Inf"]

#: Class, help and labels after ``database``, by name.
_FAMILIES: dict[str, tuple[Any, str, tuple[str, ...]]] = {
    "up": (Gauge, "Whether the database of the queue answered.", ()),
    "scrape_duration_seconds": (Gauge, "How long it took to read these figures.", ()),
    "jobs": (
        Gauge, f"Live jobs, by state. Counts above {MOST} may be a minute old.", ("queue", "state"),
    ),
    "oldest_ready_age_seconds": (
        Gauge, "How long the oldest job that a worker may claim has been due; 0 if there is none.",
        ("queue",),
    ),
    "longest_running_age_seconds": (
        Gauge, "How long the longest running job has been running; 0 if there is none.", ("queue",),
    ),
    "queue_paused": (Gauge, "Whether the queue, or everything, is paused.", ("queue",)),
    "queue_workers": (Gauge, "Worker processes that claim jobs of the queue.", ("queue",)),
    "wanted_slots": (Gauge, "Slots that the jobs want, to start within a minute.", ("queue",)),
    "workers": (Gauge, "Worker processes, by state.", ("state",)),
    "slots": (Gauge, "Jobs that the workers can run at the same time.", ()),
    "busy_slots": (Gauge, "Slots that are in use.", ()),
    "attempts": (Counter, "Attempts that ended, by outcome.", ("queue", "task", "outcome")),
    "wait_seconds": (Histogram, "From the time when the job was due to its start.", ("queue", "task")),
    "run_seconds": (Histogram, "From the start of the attempt to its end.", ("queue", "task")),
}  # fmt: skip


class PgQueueCollector(Collector):
    """Yields the figures of these databases; by default, of all that jobs go to.

    Register it in a registry of its own (``registry``), or with the metrics of your project.
    """

    def __init__(self, databases: Collection[str] | None = None) -> None:
        self._databases = databases

    def describe(self) -> list[Metric]:
        """Return nothing, so that registering it reads no database."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Read all databases."""
        families = {
            name: family(f"pgqueue_{name}", text, labels=["database", *labels])
            for name, (family, text, labels) in _FAMILIES.items()
        }
        aliases = sorted(queue_databases() if self._databases is None else self._databases)
        several = [alias for alias in aliases if alias in conf.current().shards]
        several = several if len(several) > 1 else []
        shards = ask_all(several, _read)
        for alias in aliases:
            began = perf_counter()
            found = shards.given.get(alias)
            try:
                if alias not in shards.failed:
                    found = found or _read(alias)
            except (Error, TimeLimitReached) as error:
                shards.failed[alias] = str(error) or "it took too long"
            if found is None:
                logger.warning("no metrics of the database %r: %s", alias, shards.failed[alias])
            else:
                for name, labels, *values in found[0]:
                    families[name].add_metric([alias, *labels], *values)
            families["up"].add_metric([alias], int(found is not None))
            took = perf_counter() - began if alias not in several else found[1] if found else SECONDS
            families["scrape_duration_seconds"].add_metric([alias], took)
        yield from families.values()


def _read(alias: str) -> tuple[list[tuple[Any, ...]], float]:
    """Return the samples of a database, and how many seconds it took to read them: the name of the figure,
    the labels, and the value, or the classes and the sum of a histogram.
    """
    began = perf_counter()
    with time_limit(alias, PATIENCE):
        every, crew = totals(alias), Crew(alias)
        # Queues without live jobs have zeros: their series must not end.
        names = {*Queue.objects.using(alias).values_list("pk", flat=True)}
        found = depths(alias, names.union(total.queue_name for total in every), MOST)
        counted = flows(alias)
        wanted = {row.queue_name: row.slots for row in scale_hint(alias).queues}
    counts = _counts(alias, found, counted)
    samples: list[tuple[Any, ...]] = [("jobs", key, count) for key, count in counts.items()]
    for name, depth in found.items():
        samples += [
            ("oldest_ready_age_seconds", [name], depth.oldest_ready),
            ("longest_running_age_seconds", [name], depth.longest_running),
            ("queue_paused", [name], int(depth.is_paused)),
            ("queue_workers", [name], crew.serving(name)),
        ]
    samples += [("wanted_slots", [name], wanted.get(name, 0.0)) for name in {*found, *wanted}]
    samples += [("workers", [vital.value], crew.count(vital)) for vital in Vital]
    samples += [("slots", [], crew.slots), ("busy_slots", [], crew.busy)]
    for total in every:
        labels = [total.queue_name, total.task_path]
        samples += [("attempts", [*labels, outcome], getattr(total, outcome)) for outcome in OUTCOMES]
        for what in ("wait", "run"):
            sums = accumulate(getattr(total, f"{what}_histogram"))
            buckets = list(zip(_CLASSES, sums, strict=True))
            samples.append((f"{what}_seconds", labels, buckets, getattr(total, f"{what}_seconds")))
    return samples, perf_counter() - began


#: What this process has counted beyond ``MOST``, and until when that is used. None: it took too long.
_counted: dict[str, tuple[float, dict[str, Depth] | None]] = {}


def _counts(alias: str, found: dict[str, Depth], counted: dict[str, Flow]) -> dict[tuple[str, str], int]:
    """Return how many jobs are in each state of each queue. A count that is not known is left out."""
    until, own = _counted.get(alias, (0.0, None))
    is_new = monotonic() < until
    counts: dict[tuple[str, str], int] = {}
    unknown: list[tuple[str, str]] = []
    for name, depth in found.items():
        for state in STATES:
            count = getattr(depth, state)
            if state == "running" or (count is not None and count <= MOST):
                counts[name, state] = count
                continue
            sources = [counted.get(name), (own or {}).get(name) if is_new else None]
            known = [getattr(each, state) for each in sources if each is not None]
            # A count from before a bulk may be smaller than what is there by now.
            if fitting := [each for each in known if each is not None and each >= (count or 0)]:
                counts[name, state] = fitting[0]
            else:
                unknown.append((name, state))
    if not unknown or (is_new and own is None):
        return counts
    whole = within(alias, PATIENCE, lambda: depths(alias, most=_MOST_COUNTED))
    _counted[alias] = monotonic() + _COUNTED_FOR, whole
    if whole is not None:
        of_whole = ((key, getattr(whole.get(key[0], Depth(key[0])), key[1])) for key in unknown)
        counts |= {key: count for key, count in of_whole if count is not None}
    return counts


def registry(databases: Collection[str] | None = None) -> CollectorRegistry:
    """Return a registry with these figures alone."""
    found = CollectorRegistry()
    found.register(PgQueueCollector(databases))
    return found
