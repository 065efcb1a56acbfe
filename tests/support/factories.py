"""The factories of the test kit, with a task of the tests."""

from __future__ import annotations

from django_pgqueue.testing import factories
from django_pgqueue.testing.factories import ERROR, BatchFactory, QueueFactory, WorkerFactory

__all__ = [
    "ERROR",
    "BatchFactory",
    "JobFactory",
    "JobStatFactory",
    "QueueFactory",
    "ScheduleFactory",
    "WorkerFactory",
]


class JobFactory(factories.JobFactory):
    """A pending job that is due."""

    task = "tests.app.tasks.add"
    args = [1, 2]


class JobStatFactory(factories.JobStatFactory):
    """The statistics of a task for one minute."""

    task_path = "tests.app.tasks.add"


class ScheduleFactory(factories.ScheduleFactory):
    """A schedule that someone has made in the admin."""

    task_path = "tests.app.tasks.noop"
