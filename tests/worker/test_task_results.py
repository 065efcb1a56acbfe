"""What ``django.tasks`` sees of jobs that really run: results from the first attempt to the end of retention,
and the context of a task.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import override_settings
from django.utils import timezone

from django_pgqueue import cancel, retry
from django_pgqueue.compat import TaskResultDoesNotExist, TaskResultStatus, task_backends
from django_pgqueue.models import Job
from tests.app import worker_tasks as tasks
from tests.support.coroutines import run
from tests.support.workers import run_due

OURS = {"BACKEND": "django_pgqueue.backend.PgQueueBackend"}

pytestmark = pytest.mark.django_db(transaction=True)


def expire(result: Any) -> None:
    Job.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    run_due()


def exhaust(result: Any) -> None:
    run_due()


def test_a_result_follows_its_job_through_failures_and_a_retry_by_hand() -> None:
    result = tasks.fail_once.enqueue()
    assert (result.status, result.attempts) == (TaskResultStatus.READY, 0)
    with pytest.raises(ValueError, match="not finished"):
        _ = result.return_value
    first = run_due().worker
    result.refresh()
    assert result.status == TaskResultStatus.SUCCESSFUL
    assert (result.return_value, result.worker_ids) == (Job.objects.get().result, [str(first)] * 2)
    (error,) = result.errors
    assert issubclass(error.exception_class, Exception)
    assert "fail_once" in error.traceback
    assert retry(result, done=True) == 1
    result.refresh()
    assert (result.status, result.attempts, result.errors) == (TaskResultStatus.READY, 2, [error])
    second = run_due().worker
    run(result.arefresh())
    assert result.status == TaskResultStatus.SUCCESSFUL
    # Who had done it is forgotten; who has failed is with the error.
    assert (result.worker_ids, result.errors) == ([str(first), "?", str(second)], [error])


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_a_job_in_another_database_runs_and_is_found_under_one_id() -> None:
    with override_settings(TASKS={"default": OURS, "there": {**OURS, "OPTIONS": {"database": "other"}}}):
        result = tasks.contextual.using(backend="there").enqueue(7)
        run_due(alias="other")
        result.refresh()
        assert result.return_value == [1, result.id, 7]  # the context has the same id
        assert task_backends["default"].get_result(result.id).return_value == [1, result.id, 7]


def test_attempts_count_all_errors_of_which_the_first_and_last_are_kept(settings: Any) -> None:
    settings.PGQUEUE = {"KEEP_ERRORS": 1}
    result = tasks.fail.enqueue()
    worker = str(run_due().worker)
    found = tasks.fail.get_result(result.id)
    assert (found.status, found.attempts, len(found.errors)) == (TaskResultStatus.FAILED, 3, 2)
    assert found.worker_ids == [worker, "?", worker]


@pytest.mark.parametrize(("task", "end"), [("noop", cancel), ("perishable", expire), ("fail", exhaust)])
def test_whatever_is_over_without_a_result_has_failed(task: str, end: Callable[[Any], Any]) -> None:
    result = getattr(tasks, task).enqueue()
    end(result)
    result.refresh()
    assert (result.status, result.is_finished) == (TaskResultStatus.FAILED, True)
    assert result.finished_at is not None
    with pytest.raises(ValueError, match="Task failed"):
        _ = result.return_value


def test_a_job_dropped_by_retention_is_not_there_in_any_way() -> None:
    result = tasks.noop.enqueue()
    run_due()
    run(result.arefresh())
    assert result.is_finished
    with connection.cursor() as cursor:  # as the ring does with the oldest shelf
        cursor.execute("SELECT tableoid::regclass::text FROM pgqueue_job WHERE id = %s", [result.id])
        (shelf,) = cursor.fetchone()
        assert shelf != "pgqueue_job_live"
        cursor.execute(f"TRUNCATE {shelf}")
    for ask in (
        result.refresh,
        lambda: run(result.arefresh()),
        lambda: tasks.noop.get_result(result.id),
        lambda: run(tasks.noop.aget_result(result.id)),
    ):
        with pytest.raises(TaskResultDoesNotExist, match=f"Job '{result.id}' does not exist, or was deleted"):
            ask()
    assert result.is_finished  # it keeps what it knew


@pytest.mark.parametrize("task", ["sees_context", "asees_context"])
def test_the_context_has_the_job_and_a_fresh_result(task: str) -> None:
    result = getattr(tasks, task).enqueue(2)
    run_due()
    result.refresh()
    assert result.return_value == {
        "is current": True,
        "is Django's": True,
        "job": [int(result.id), "running", 2],
        "result": [result.id, "RUNNING", 2, ["builtins.ValueError"]],
    }
