"""One look at the queue. Each part has a time limit of its own, and one that is too slow is left out."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

from django.db import Error, connections
from django.utils import timezone

from ...figures.failures import FailureGroup, groups
from ...figures.spans import HOUR
from ...figures.throughput import rates
from ...figures.verdict import State, judge
from ...figures.verdict import read as read_state
from ...models import Job
from ...models.job import Status
from ...server_time import server_now
from ...time_limit import within
from .._job_rows import readable

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["PATIENCE", "Reading", "read"]

PATIENCE = 2.0  # seconds that one statement may take
MOST_RUNNING = 100
MOST_FAILURES = 20

T = TypeVar("T")


@dataclass(slots=True)
class Reading:
    """What was found."""

    database: str
    at: datetime
    """When: the time of the server, if it answers."""
    verdict: str = ""
    is_healthy: bool = False
    state: State = field(init=False)
    rates: dict[str, float] = field(default_factory=dict)
    running: list[Any] = field(default_factory=list)
    """The jobs that have run longest."""
    failures: list[FailureGroup] = field(default_factory=list)
    slow: list[str] = field(default_factory=list)
    """The parts that took too long."""
    error: str = ""
    """Why the database could not be read at all."""

    def __post_init__(self) -> None:
        self.state = State(self.database, None, None, None, None, None)


def read(alias: str) -> Reading:
    """Read everything. This never raises an error of the database."""
    reading = Reading(alias, timezone.now())
    try:
        reading.at = _part(reading, "time", lambda: server_now(alias)) or reading.at
        state = reading.state = read_state(alias)
        found = judge(state)
        reading.verdict, reading.is_healthy = found.line, found.is_healthy
        parts = {"queues": state.depths, "workers": state.crew, "minutes": state.minutes}
        reading.slow += [name for name, part in parts.items() if part is None]
        reading.rates = _part(reading, "rates", lambda: rates(alias)) or {}
        reading.running = _part(reading, "running jobs", lambda: _running(alias)) or []
        reading.failures = _part(reading, "failures", lambda: groups(alias, HOUR, most=MOST_FAILURES)) or []
    except Error as error:
        reading.error = " ".join(str(error).split()) or type(error).__name__
        connections[alias].close()  # the next look connects again
    return reading


def _part(reading: Reading, name: str, find: Callable[[], T]) -> T | None:
    found = within(reading.database, PATIENCE, find)
    if found is None:
        reading.slow.append(name)
    return found


def _running(alias: str) -> list[Any]:
    jobs = readable(Job.objects.using(alias).filter(shelf=0, status=Status.RUNNING))
    return list(jobs.order_by("last_attempted_at", "pk")[:MOST_RUNNING])
