"""``immediate_jobs`` and ``dummy_jobs``: a mode for a block, a test, or all tests of a class.

Both replace this package's backends in TASKS, so that all ways of enqueuing obey: ``enqueue()``,
``enqueue_many()``, the tasks' own ``.enqueue()``, and the async forms. Jobs of plain SQL are always rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, cast

from django.test import TestCase
from django.test.utils import TestContextDecorator, override_settings

from ..compat import task_backends
from ..routing import IMPLICIT, our_aliases
from . import memory

if TYPE_CHECKING:
    from ..models import Job

__all__ = ["dummy_jobs", "immediate_jobs"]

T = TypeVar("T")

_HERE = "django_pgqueue.testing"
#: The backends by ``at_once`` and ``raise_failures``.
_IMMEDIATE = {
    (False, True): f"{_HERE}.ImmediateBackend",
    (False, False): f"{_HERE}.backends.AtCommitQuietly",
    (True, True): f"{_HERE}.backends.AtOnce",
    (True, False): f"{_HERE}.backends.AtOnceQuietly",
}


class _Mode(TestContextDecorator):
    """Replaces the path of each of our backends, and keeps their QUEUES and OPTIONS."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = path
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
            tasks[alias]["BACKEND"] = self._path
        if not our_aliases():
            tasks[IMPLICIT] = {"BACKEND": self._path, "QUEUES": []}
        override = override_settings(TASKS=tasks)
        override.enable()
        self._overrides.append(override)
        return None

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
        super().__init__(_IMMEDIATE[bool(at_once), bool(raise_failures)])


class dummy_jobs(_Mode):  # noqa: N801
    """Keep jobs in memory and run none. This needs no database.

    Use it as a context manager, whose value is the list of the jobs, or as a decorator of a test function or
    a ``SimpleTestCase`` class. Calls are checked, but unique keys are not looked up: each call makes a job.
    """

    def __init__(self) -> None:
        super().__init__(f"{_HERE}.DummyBackend")

    def __enter__(self) -> list[Job]:  # type: ignore[override]
        return cast("list[Job]", super().__enter__())

    def enable(self) -> Any:
        """Begin with no jobs in memory."""
        memory.clear()
        super().enable()
        return memory.JOBS

    def disable(self) -> None:
        """Forget the jobs."""
        super().disable()
        memory.clear()
