"""Backends for TASKS in the settings of tests: jobs run in the test, or are only kept in memory.

    TASKS = {"default": {"BACKEND": "django_pgqueue.testing.ImmediateBackend"}}

They check calls as the real backend does, and accept all of its options. Like that one, they may be imported
while apps are loading, so what needs the models is imported when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..backend import BadParameters, PgQueueBackend
from ..compat import TaskResultDoesNotExist

if TYPE_CHECKING:
    from ..models import Job


class ImmediateBackend(PgQueueBackend):
    """Runs each job in the process that enqueues it, at the commit, or at once without a transaction.

    If an attempt fails, its exception reaches the code that enqueued the job, or that commits. The OPTIONS in
    TASKS: ``"at_once": True``, a job does not wait for the commit; ``"raise_failures": False``, failures are
    only stored with the job.
    """

    option_names = ("database", "at_once", "raise_failures")

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        """Raises ImproperlyConfigured for invalid OPTIONS."""
        super().__init__(alias, params)
        for name in ("at_once", "raise_failures"):
            value = self.options.get(name, False)
            if not isinstance(value, bool):
                raise BadParameters(
                    f"TASKS[{alias!r}]['OPTIONS']: {name} must be True or False, not {value!r}.",
                    "Correct the value.",
                )

    @property
    def keeper(self) -> Any:
        """What runs the jobs."""
        from .running import Immediate

        return Immediate(
            at_once=self.options.get("at_once", False),
            raise_failures=self.options.get("raise_failures", True),
        )


class DummyBackend(PgQueueBackend):
    """Keeps jobs in memory and runs none. It needs no database.

    The jobs are kept until ``clear()``, as with Django's own. pytest calls it after each test.
    """

    @property
    def keeper(self) -> Any:
        """What keeps the jobs."""
        from .modes import Memory

        return Memory()

    def clear(self) -> None:
        """Forget the jobs of all backends of this class."""
        from .modes import clear_jobs as clear

        clear()

    def find_job(self, result_id: str) -> Job:
        """Return a job in memory."""
        from .modes import JOBS

        for job in JOBS:
            if str(job.pk) == str(result_id):
                return job
        raise TaskResultDoesNotExist(f"No job {result_id!r} was enqueued in dummy mode.")
