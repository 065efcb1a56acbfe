"""The depth and age of each queue, from the leaf of live jobs.

One statement counts each kind of jobs up to a limit, and asks the planner for an estimate beyond it. So it
takes as long with a million waiting jobs as with ten thousand.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from django.db import connections
from django.db.models import Q
from django.db.models.functions import Now

from ..models import Pause
from ..models.pause import Kind

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["MOST", "Depth", "depths"]

#: Up to here, the counts are exact.
MOST = 10_000

_SQL = "SELECT * FROM pgqueue_depth_v1(%s)"


@dataclass(slots=True)
class Depth:
    """The live jobs of one queue. Counts are exact up to the limit of the call, and estimates beyond it."""

    queue_name: str
    ready: int = 0
    """Jobs that a worker may claim now."""
    scheduled: int = 0
    """Jobs that are not due yet, and have not been attempted."""
    retrying: int = 0
    """Jobs that have been attempted, and whose next attempt is not due yet: they back off or snooze."""
    running: int = 0
    blocked: int = 0
    """Jobs that wait for their concurrency key, for other jobs, or until their task is no longer paused."""
    oldest_ready: float = 0.0
    """How many seconds the oldest ready job has been due; 0 if there is none."""
    longest_running: float = 0.0
    """How many seconds the longest running job has been running; 0 if there is none."""
    is_paused: bool = False

    @property
    def needs_workers(self) -> bool:
        """Whether there is work for a worker."""
        return bool(self.ready or self.scheduled or self.retrying or self.running or self.blocked)


def depths(alias: str, names: Iterable[str] = (), most: int = MOST) -> dict[str, Depth]:
    """Return these queues by name, those that have live jobs, and those that are paused.

    Jobs are counted up to ``most``, for each queue and state.
    """
    found = {name: Depth(name) for name in names}
    with connections[alias].cursor() as cursor:
        cursor.execute(_SQL, [most])
        for name, ready, scheduled, retrying, running, blocked, oldest, longest in cursor.fetchall():
            depth = found.setdefault(name, Depth(name))
            depth.ready += ready
            depth.scheduled += scheduled
            depth.retrying += retrying
            depth.running += running
            depth.blocked += blocked
            depth.oldest_ready = max(depth.oldest_ready, oldest or 0.0)
            depth.longest_running = max(depth.longest_running, longest or 0.0)
    in_force = Q(until__isnull=True) | Q(until__gt=Now())
    pauses = set(Pause.objects.using(alias).filter(in_force).values_list("kind", "name"))
    for kind, name in pauses:
        if kind == Kind.QUEUE:
            found.setdefault(name, Depth(name)).is_paused = True
    if (Kind.ALL, "") in pauses:
        for depth in found.values():
            depth.is_paused = True
    return dict(sorted(found.items()))
