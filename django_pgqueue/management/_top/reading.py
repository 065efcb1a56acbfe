"""One look at the queue. Each part has a time limit of its own, and one that is too slow is left out."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

from django.db import Error, connections
from django.utils import timezone

from ...figures.crew import Crew
from ...figures.depth import Depth, depths
from ...figures.health import health
from ...figures.spans import HOUR, Figures, breakdown
from ...figures.throughput import Throughput, throughput
from ...models import Job
from ...models.job import Status
from ...time_limit import TimeLimitReached, time_limit
from .._job_rows import readable

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["PATIENCE", "Reading", "read"]

PATIENCE = 2.0  # seconds that one statement may take
MOST_WAITING = 1000  # counts are exact up to here, and estimates above
MOST_RUNNING = 100
MOST_FAILURES = 20

T = TypeVar("T")


@dataclass(slots=True)
class Reading:
    """What was found."""

    database: str
    at: datetime
    verdict: str = ""
    is_healthy: bool = False
    queues: dict[str, Depth] = field(default_factory=dict)
    rates: dict[str, Throughput] = field(default_factory=dict)
    crew: Crew | None = None
    running: list[Any] = field(default_factory=list)
    """The jobs that have run longest."""
    failures: list[Figures] = field(default_factory=list)
    slow: list[str] = field(default_factory=list)
    """The parts that took too long."""
    error: str = ""
    """Why the database could not be read at all."""


def read(alias: str) -> Reading:
    """Read everything. This never raises an error of the database."""
    reading = Reading(alias, timezone.now())
    try:
        found = health(alias)
        reading.verdict, reading.is_healthy = found.line, found.is_healthy
        reading.queues = _part(reading, "queues", lambda: depths(alias, most=MOST_WAITING)) or {}
        reading.crew = _part(reading, "workers", lambda: Crew(alias))
        reading.rates = _part(reading, "rates", lambda: throughput(alias)) or {}
        reading.running = _part(reading, "running jobs", lambda: _running(alias)) or []
        reading.failures = _part(reading, "failures", lambda: _failures(alias)) or []
    except Error as error:
        reading.error = " ".join(str(error).split()) or type(error).__name__
        connections[alias].close()  # the next look connects again
    return reading


def _part(reading: Reading, name: str, find: Callable[[], T]) -> T | None:
    try:
        with time_limit(reading.database, PATIENCE):
            return find()
    except TimeLimitReached:
        reading.slow.append(name)
        return None


def _running(alias: str) -> list[Any]:
    jobs = readable(Job.objects.using(alias).filter(shelf=0, status=Status.RUNNING))
    return list(jobs.order_by("last_attempted_at", "pk")[:MOST_RUNNING])


def _failures(alias: str) -> list[Figures]:
    """Return the tasks that failed in the last hour, most failures first."""
    rows = [row for row in breakdown(alias, HOUR, "task") if row.failed or row.retried]
    return sorted(rows, key=lambda row: (-row.failed, -row.retried))[:MOST_FAILURES]
