"""Backends for TASKS in the settings of tests: jobs run in the test, or are only kept in memory.

    TASKS = {"default": {"BACKEND": "django_pgqueue.testing.ImmediateBackend"}}

They check calls as the real backend does, and accept all of its options.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..backend import PgQueueBackend
from ..compat import TaskResultDoesNotExist
from ..definition import find_task
from .immediate import Immediate
from .memory import JOBS, Memory

if TYPE_CHECKING:
    from ..compat import TaskResult

__all__ = ["DummyBackend", "ImmediateBackend"]


class ImmediateBackend(PgQueueBackend):
    """Runs each job in the process that enqueues it: at the commit, or at once without a transaction.

    If an attempt fails, its exception reaches the code that enqueued the job, or that commits.
    """

    keeper: Any = Immediate()


class DummyBackend(PgQueueBackend):
    """Keeps jobs in memory and runs none. It needs no database."""

    keeper: Any = Memory()

    def get_result(self, result_id: str) -> TaskResult[..., Any]:
        """Return the result of a job in memory. Raise TaskResultDoesNotExist if there is none."""
        for job in JOBS:
            if str(job.pk) == str(result_id):
                return self._result_of(job, self._task_of(job, find_task(job.task_path)))
        raise TaskResultDoesNotExist(f"No job {result_id!r} was enqueued in dummy mode.")


class AtCommitQuietly(ImmediateBackend):
    """Failures are only stored with the job."""

    keeper = Immediate(raise_failures=False)


class AtOnce(ImmediateBackend):
    """Does not wait for the commit."""

    keeper = Immediate(at_once=True)


class AtOnceQuietly(ImmediateBackend):
    """Does not wait for the commit, and failures are only stored with the job."""

    keeper = Immediate(at_once=True, raise_failures=False)
