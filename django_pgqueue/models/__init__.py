"""The tables as Django models: fields and querysets. The SQL in ``sql/`` changes the state of jobs."""

from __future__ import annotations

from ..conf import check_installed

# ruff: noqa: E402 - this comes before the models: Django would name one that the user has never heard of.
check_installed()

from .batch import BatchCounts, Edge, JobBatch, Tally
from .current import CurrentJob
from .job import (
    DeclaredTask,
    Job,
    JobPayload,
    JobProgress,
    JobQuerySet,
    JobStack,
    LiveJob,
    QueueStatus,
    Ring,
    Step,
)
from .queue import Limit, Pause, Queue, RateState, UniqueWindow, Worker
from .schedule import Schedule, ScheduleRun
from .statistics import FailureCount, FailureGroup, FailureNote, JobStat, RaisedAlert, StatRollup

__all__ = [
    "BatchCounts", "CurrentJob", "DeclaredTask", "Edge", "FailureCount", "FailureGroup", "FailureNote",
    "Job", "JobBatch", "JobPayload", "JobProgress", "JobQuerySet", "JobStack", "JobStat", "Limit", "LiveJob",
    "Pause", "Queue", "QueueStatus", "RaisedAlert", "RateState", "Ring", "Schedule", "ScheduleRun",
    "StatRollup", "Step", "Tally", "UniqueWindow", "Worker",
]  # fmt: skip
