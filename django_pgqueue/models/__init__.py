"""The tables as Django models: fields and querysets. The SQL in ``sql/`` changes the state of jobs."""

from __future__ import annotations

from django.apps import apps
from django.core.exceptions import ImproperlyConfigured

if apps.apps_ready and not apps.is_installed("django_pgqueue"):
    # Django would name a model that the user has never heard of.
    raise ImproperlyConfigured(
        'django_pgqueue is not installed: add "django_pgqueue" to INSTALLED_APPS, and run: manage.py migrate'
    )


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
