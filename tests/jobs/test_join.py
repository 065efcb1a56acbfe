"""``job.join()`` and ``result.join()``: what they return, and what they refuse."""

from __future__ import annotations

import asyncio
import copy
import pickle
from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import connection, transaction
from django.db.transaction import TransactionManagementError
from django.test import TestCase, override_settings

from django_pgqueue import cancel, current_job, enqueue, enqueue_many, task
from django_pgqueue.compat import BaseTaskBackend, TaskResultDoesNotExist, TaskResultStatus
from django_pgqueue.exceptions import WrongBackend
from django_pgqueue.models import Job
from django_pgqueue.testing import call_task, dummy_jobs, immediate_jobs, run_jobs
from tests.app import inline_tasks, worker_tasks
from tests.support.coroutines import run
from tests.support.workers import working


@task
def waits_for_itself() -> None:
    current_job().join()


committed = pytest.mark.django_db(transaction=True)


def joined(waiter: Any, how: str, timeout: Any = 20) -> Any:
    return waiter.join(timeout) if how == "join" else async_to_sync(waiter.ajoin)(timeout)


in_both_ways = pytest.mark.parametrize("how", ["join", "ajoin"])


@committed
@in_both_ways
def test_a_worker_ends_the_wait(how: str) -> None:
    with working():
        job = enqueue(worker_tasks.add, 1)
        assert joined(job, how) is job
        assert job.status == "done"
        result = worker_tasks.add.enqueue(1)
        assert joined(result, how, timedelta(seconds=20)) is result
    assert result.status == TaskResultStatus.SUCCESSFUL
    assert (result.return_value, len(result.worker_ids)) == (job.result, 1)
    assert result == worker_tasks.add.get_result(result.id)


@committed
@in_both_ways
def test_a_job_that_is_over_already(how: str) -> None:
    stale = enqueue(worker_tasks.noop)
    result = worker_tasks.noop.get_result(str(stale.pk))
    cancel(stale)
    assert joined(stale, how, 0).status == "cancelled"
    assert joined(result, how, 0).status == TaskResultStatus.FAILED


@committed
@in_both_ways
@pytest.mark.parametrize(
    ("options", "state"),
    [({}, r"it is pending\."), ({"run_after": timedelta(hours=1)}, r"it is pending until \d{4}-.*\+00:00\.")],
)
def test_a_timeout_says_how_far_the_job_is(how: str, options: dict[str, Any], state: str) -> None:
    job = enqueue(worker_tasks.noop.using(**options))
    for timeout in (0, 0.01):
        message = rf"Job {job.pk} \(tests.app.worker_tasks.noop\) is not over after {timeout} s: {state}"
        with pytest.raises(TimeoutError, match=message):
            joined(job, how, timeout)


@committed
def test_a_timeout_names_the_reason() -> None:
    job = enqueue(worker_tasks.noop)
    Job.objects.filter(pk=job.pk).update(waiting_reason="its worker was lost")
    with pytest.raises(TimeoutError, match=r"it is pending \(its worker was lost\)\.$"):
        job.join(0)


@pytest.mark.parametrize(
    ("timeout", "error"),
    [("5", TypeError), (True, TypeError), (-1, ValueError), (float("nan"), ValueError)],
)
def test_a_bad_timeout(timeout: Any, error: type[Exception]) -> None:
    job = Job.from_db("default", ["id"], [5])
    with pytest.raises(error, match=r"join\(timeout=...\)"):
        job.join(timeout)
    with pytest.raises(error, match=r"join\(timeout=...\)"):
        run(job.ajoin(timeout))


@committed
def test_a_job_that_does_not_exist() -> None:
    with transaction.atomic():
        job, result = enqueue(worker_tasks.noop), worker_tasks.noop.enqueue()
        transaction.set_rollback(True)
    for how in ("join", "ajoin"):
        with pytest.raises(Job.DoesNotExist, match="was rolled back, or it is over and no longer kept"):
            joined(job, how)
        with pytest.raises(TaskResultDoesNotExist, match="does not exist, or was deleted"):
            joined(result, how)


@committed
def test_the_id_alone_is_enough() -> None:
    (pk,) = enqueue_many([worker_tasks.noop.bind()]).ids
    cancel(pk)
    assert Job.from_db("default", ["id"], [pk]).join(0).status == "cancelled"


@committed
@in_both_ways
@pytest.mark.parametrize("make", [lambda: enqueue(worker_tasks.noop), worker_tasks.noop.enqueue])
def test_a_transaction_is_refused(how: str, make: Any) -> None:
    old = make()
    cancel(old)
    with transaction.atomic():
        for each in (old, make()):  # also one that is over: whether code works must not depend on luck
            with pytest.raises(TransactionManagementError, match=r"Call join\(\) after the atomic\(\) block"):
                joined(each, how)
    connection.set_autocommit(False)
    try:
        with pytest.raises(TransactionManagementError, match="sees a job only after the commit"):
            joined(old, how)
    finally:
        connection.rollback()
        connection.set_autocommit(True)


class InATestCase(TestCase):
    """A ``TestCase`` is one transaction, which does not count."""

    def test_run_jobs_comes_first(self) -> None:
        job = enqueue(inline_tasks.see, 1)
        with pytest.raises(TransactionManagementError, match=r"is pending, .* Call run_jobs\(\)"):
            job.join(5)
        run_jobs()
        assert job.join(5).status == "done"
        assert joined(inline_tasks.see.get_result(str(job.pk)), "ajoin").is_finished
        with transaction.atomic(), pytest.raises(TransactionManagementError, match="after the atomic"):
            job.join()

    def test_immediate_mode(self) -> None:
        with immediate_jobs():
            assert enqueue(inline_tasks.see, 1).join().status == "done"
            assert inline_tasks.see.enqueue(1).join().is_finished


@in_both_ways
def test_dummy_jobs_are_never_over(how: str) -> None:
    with dummy_jobs():
        for each in (enqueue(inline_tasks.see, 1), inline_tasks.see.enqueue(1)):
            with pytest.raises(ValueError, match="is not in a database, so it will never be over"):
                joined(each, how)


def test_a_job_cannot_wait_for_itself() -> None:
    with pytest.raises(ValueError, match="cannot wait for itself"):
        call_task(waits_for_itself)


@committed
def test_a_result_is_like_one_of_django() -> None:
    result = worker_tasks.noop.enqueue()
    assert result == worker_tasks.noop.get_result(result.id)
    assert copy.copy(result) == result
    assert pickle.loads(pickle.dumps(result)) == result  # noqa: S301
    assert not hasattr(result, "__dict__")
    stock = {"BACKEND": f"{BaseTaskBackend.__module__.rpartition('.')[0]}.dummy.DummyBackend"}
    object.__setattr__(result, "backend", "stock")
    with override_settings(TASKS={"stock": stock}), pytest.raises(WrongBackend, match=r"TASKS\['stock'\]"):
        result.join()


@committed
def test_a_cancelled_coroutine_leaves_nothing() -> None:
    job = enqueue(worker_tasks.noop)

    async def give_up() -> None:
        async with asyncio.timeout(0.05):
            await job.ajoin()

    with pytest.raises(TimeoutError):
        run(give_up())
    cancel(job)
    assert job.join(0).is_finished
