"""Django's own tests of ``django.tasks``, run against our backend.

They are made for Django's two backends. Here, their names lead to two adapters of ours: jobs are rows in the
database, and what the immediate backend runs at once is claimed, run and finished by a worker. Everything
else is the backend that projects use. The tests that cannot pass are in `EXCLUDED`, each with its reason. If
one of them passes, or is not there any more, this fails. Those of `CustomBackendTestCase` and
`CustomTaskTestCase` use backends of their own, and show that our app does not disturb them.

`tox run -e djangotests-django61` downloads the tests and runs this file. pytest does not collect it by
itself.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

import pytest
from asgiref.sync import sync_to_async
from django.db import connections
from django.tasks.backends import dummy, immediate
from django.test import TransactionTestCase

from django_pgqueue.backend import PgQueueBackend
from django_pgqueue.compat import TaskResult
from django_pgqueue.models import Job
from tests.support.workers import run_due

R = TypeVar("R")

MODULES = ("test_tasks", "test_dummy_backend", "test_immediate_backend", "test_custom_backend")

NO_RESULTS = "the immediate backend has no results; ours has"
COMMIT = "the job is part of the transaction, and can only run after the commit"
SHARED = "changes a result in the memory of the dummy backend; ours are in the database"
RAISES = "the immediate backend lets KeyboardInterrupt pass; a worker records it, and goes on"
CLASS = "the class of the error is InvalidJSON, which is a TypeError"

EXCLUDED = {
    "DummyBackendTestCase.test_refresh_result": SHARED,
    "DummyBackendTestCase.test_refresh_result_async": SHARED,
    "ImmediateBackendTestCase.test_cannot_get_result": NO_RESULTS,
    "ImmediateBackendTestCase.test_cannot_refresh_result": NO_RESULTS,
    "ImmediateBackendTestCase.test_cannot_pass_run_after": "the immediate backend has no delays; ours has",
    "ImmediateBackendTestCase.test_complex_return_value": CLASS,
    "ImmediateBackendTestCase.test_throws_keyboard_interrupt": RAISES,
    "ImmediateBackendTransactionTestCase.test_doesnt_wait_until_transaction_commit_by_default": COMMIT,
}


def outside_of_the_loop(call: Callable[[], R]) -> R:
    """Make a sync call. Some of Django's tests make one in a coroutine, where the ORM refuses to work. The
    dummy backend only looks into its memory.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return call()

    def call_and_close() -> R:
        try:
            return call()
        finally:
            connections.close_all()

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(call_and_close).result()


class StoredBackend(PgQueueBackend):
    """In the place of the dummy backend, with the two members that Django's tests look at."""

    def get_result(self, result_id: str) -> TaskResult[..., Any]:
        """Return the result."""
        return outside_of_the_loop(partial(super().get_result, result_id))

    @property
    def results(self) -> list[TaskResult[..., Any]]:
        """The results of all jobs, oldest first."""
        get = super().get_result
        return outside_of_the_loop(lambda: [get(str(job.pk)) for job in Job.objects.order_by("pk")])

    def clear(self) -> None:
        """Delete all jobs."""
        Job.objects.all()._raw_delete("default")  # Job.delete() refuses


class RunAtOnceBackend(PgQueueBackend):
    """In the place of the immediate backend: a worker runs what is due before ``enqueue`` returns."""

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> TaskResult[Any, Any]:
        """Enqueue, run, and return the result as it is then."""
        result = super().enqueue(task, args, kwargs)
        run_due()
        result.refresh()
        return result

    async def aenqueue(self, task: Any, args: Any, kwargs: Any) -> TaskResult[Any, Any]:
        """Like `enqueue`, for async code."""
        return await sync_to_async(self.enqueue)(task, args, kwargs)


def load() -> Iterator[type[TransactionTestCase]]:
    """Import Django's tests, and yield their test cases as ones that may use the database."""
    if "DJANGO_TASKS_TESTS" not in os.environ:
        pytest.exit("Run: tox run -e djangotests-django61", returncode=2)
    sys.path.insert(0, os.environ["DJANGO_TASKS_TESTS"])
    dummy.DummyBackend = StoredBackend  # type: ignore[assignment, misc]
    immediate.ImmediateBackend = RunAtOnceBackend  # type: ignore[assignment, misc]
    for module in [importlib.import_module(f"tasks.{name}") for name in MODULES]:
        for name, case in vars(module).items():
            if name.endswith("TestCase") and case.__module__ == module.__name__:
                members = {"databases": {"default"}, "available_apps": None, "__module__": __name__}
                yield type(name, (case, TransactionTestCase), members)


CASES = {case.__name__: case for case in load()}
globals().update(CASES)

for path, reason in EXCLUDED.items():
    class_name, test = path.split(".")
    if test in dir(CASES.get(class_name)):
        mark = pytest.mark.xfail(reason=reason, strict=True)
        setattr(CASES[class_name], test, mark(getattr(CASES[class_name], test)))


def test_what_is_excluded_is_there() -> None:
    gone = [path for path in EXCLUDED if path.split(".")[1] not in dir(CASES.get(path.split(".")[0]))]
    assert not gone, f"Django has no such tests any more: {gone}"
