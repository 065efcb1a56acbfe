"""The tables as Django models: fields and querysets. The SQL in ``sql/`` changes the state of jobs."""

from __future__ import annotations

from .current import CurrentJob
from .history import QueueStatus, Ring
from .job import Job, JobQuerySet, LiveJob
from .limit import Limit
from .pause import Pause
from .queue import Queue
from .rate import Rate
from .schedule import Schedule
from .stat import JobStat
from .tick import ScheduleTick
from .unique_window import UniqueWindow
from .worker import Worker

__all__ = [
    "CurrentJob",
    "Job",
    "JobQuerySet",
    "JobStat",
    "Limit",
    "LiveJob",
    "Pause",
    "Queue",
    "QueueStatus",
    "Rate",
    "Ring",
    "Schedule",
    "ScheduleTick",
    "UniqueWindow",
    "Worker",
]
