"""``immediate_jobs`` and ``dummy_jobs``: a mode for a block, a test, or all tests of a class.

Both replace this package's backends in TASKS, so that all ways of enqueuing obey: ``enqueue()``,
``enqueue_many()``, the tasks' own ``.enqueue()``, and the async forms. Jobs of plain SQL are always rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any, TypeVar, cast

from django.test import TestCase
from django.test.utils import TestContextDecorator, override_settings
from django.utils import timezone

from ..compat import task_backends
from ..jobs.batches import BatchAction, BatchRows
from ..jobs.enqueue import JobList, new_job
from ..models import Job
from ..models.batch import BatchCounts, JobBatch
from ..postgres.clock import stored
from ..tasks.call import Call
from ..tasks.routing import IMPLICIT, our_aliases

T = TypeVar("T")


class _Mode(TestContextDecorator):
    """Replaces each of our backends by one for tests, and keeps their QUEUES and databases."""

    def __init__(self, backend: str, **options: bool) -> None:
        super().__init__()
        self._path = f"django_pgqueue.testing.{backend}"
        self._options = options
        self._overrides: list[override_settings] = []

    def __call__(self, decorated: T) -> T:
        """Decorate a test function or a ``SimpleTestCase`` class."""
        made: T = super().__call__(cast("Any", decorated))
        return made

    def decorate_class(self, cls: Any) -> Any:
        """Decorate ``setUpTestData``, too. Django's own method leaves it out."""
        decorated = super().decorate_class(cls)
        if issubclass(decorated, TestCase):
            prepare = decorated.setUpTestData.__func__  # type: ignore[attr-defined]

            def set_up_test_data(of: type[TestCase]) -> None:
                with self:
                    prepare(of)

            decorated.setUpTestData = classmethod(set_up_test_data)  # type: ignore[method-assign, assignment]
        return decorated

    def enable(self) -> Any:
        """Override TASKS."""
        tasks: dict[str, Any] = {alias: dict(entry) for alias, entry in task_backends.settings.items()}
        for alias in our_aliases():
            given = tasks[alias].get("OPTIONS") or {}
            kept = {"database": given["database"]} if "database" in given else {}
            tasks[alias].update(BACKEND=self._path, OPTIONS={**kept, **self._options})
        if not our_aliases():
            tasks[IMPLICIT] = {"BACKEND": self._path, "QUEUES": [], "OPTIONS": self._options}
        self._overrides.append(override_settings(TASKS=tasks))
        self._overrides[-1].enable()

    def disable(self) -> None:
        """Restore TASKS."""
        self._overrides.pop().disable()


class immediate_jobs(_Mode):  # noqa: N801 - it is used like a function
    """Run each job in the process that enqueues it, with its row and the code of a worker.

    Use it as a context manager, or as a decorator of a test function or a ``SimpleTestCase`` class.

    A job runs at the commit of the transaction in which it is enqueued; without one, at once. The transaction
    of a ``TestCase`` does not count. ``at_once=True``: it does not wait for the commit. If an attempt fails,
    its exception is raised there; ``raise_failures=False``: it is only stored with the job.

    A job that is not due, and a retry, wait for ``run_jobs()``.
    """

    def __init__(self, *, at_once: bool = False, raise_failures: bool = True) -> None:
        super().__init__("ImmediateBackend", at_once=bool(at_once), raise_failures=bool(raise_failures))


class dummy_jobs(_Mode):  # noqa: N801
    """Keep jobs in memory and run none. This needs no database.

    Use it as a context manager, whose value is the list of the jobs, or as a decorator of a test function or
    a ``SimpleTestCase`` class. Calls are checked, but not unique keys, so each call makes a job.
    """

    def __init__(self) -> None:
        super().__init__("DummyBackend")

    def __enter__(self) -> list[Job]:  # type: ignore[override]
        return cast("list[Job]", super().__enter__())

    def enable(self) -> Any:
        """Begin with no jobs in memory."""
        clear_jobs()
        super().enable()
        return JOBS

    def disable(self) -> None:
        """Forget the jobs."""
        super().disable()
        clear_jobs()


JOBS: list[Job] = []
"""What was enqueued in dummy mode, the oldest first."""
BATCHES: dict[int, JobBatch] = {}
"""The batches that were opened in dummy mode."""
_numbers = count(1)


def clear_jobs() -> None:
    """Forget the jobs."""
    JOBS.clear()
    BATCHES.clear()


class Memory(BatchRows):
    """Takes calls and batches, and keeps their jobs. No batch ever finishes, as no job runs."""

    in_memory = True

    def one(self, call: Call) -> Job:
        """Keep the job of a call. It is not saved, and nothing else knows its id."""
        options, task = call.options, call.options.task
        now = datetime.now(UTC)
        run_after = max(now, task.run_after or now + (task.run_after_delta or timedelta()))
        expires_after = options.policy.expires_after
        expires_at = None if expires_after is None else stored(run_after + timedelta(seconds=expires_after))
        job = new_job(call, next(_numbers), stored(run_after), expires_at, stored(now))
        if call.payload is not None:
            call.payload.job = job  # not saved either; the job leads to it, too
        JOBS.append(job)
        return job

    def many(self, calls: Iterable[Call]) -> JobList:
        """Keep the jobs of calls, all or none."""
        jobs = [self.one(call) for call in list(calls)]
        return JobList(None, [(job.pk, "created") for job in jobs], jobs)

    def change(self, alias: str, action: BatchAction, batch: int | str) -> int:
        """Keep a batch, and cancel the jobs in memory that belong to it. None of them has failed."""
        if action == "open":
            number = next(_numbers)
            now = timezone.now()
            BATCHES[number] = JobBatch(id=number, name=batch, is_open=True, created_at=now, outcome="")
            return number
        row = self.row(alias, int(batch))
        if action == "retry":
            return 0
        row.is_open = False
        live = [job for job in JOBS if job.batch_id == batch and job.status != job.Status.CANCELLED]
        for job in live if action == "cancel" else ():
            job.status = job.Status.CANCELLED
        return len(live)

    def row(self, alias: str, batch: int) -> JobBatch:
        """Return it. Raise ``JobBatch.DoesNotExist``."""
        if batch not in BATCHES:
            raise JobBatch.DoesNotExist(f"No batch {batch} was opened in dummy mode.")
        return BATCHES[batch]

    def counts(self, alias: str, batch: int) -> BatchCounts:
        """Count the jobs in memory that belong to it."""
        statuses = [job.status for job in JOBS if job.batch_id == batch]
        return BatchCounts(len(statuses), 0, 0, statuses.count("cancelled"))
