"""What controls a job, or decides about its retry, does so in an ``ExceptionGroup``, too."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from django_pgqueue import (
    CancelJob,
    EventTimeout,
    LeaseLost,
    RetryLater,
    Snooze,
    TaskTimeout,
    cancel,
    current_job,
    enqueue,
    send_event,
    task,
)
from django_pgqueue.models import Job
from django_pgqueue.testing import run_jobs
from django_pgqueue.worker.executor.errors import fingerprint, step_of
from tests.app.async_tasks import snoozed_in_a_group
from tests.support.workers import fresh, run_due, until, working

pytestmark = pytest.mark.django_db(transaction=True)

RAISES: list[Any] = []
STARTED: list[int] = []


async def _raise(error: BaseException) -> None:
    raise error


@task(max_attempts=3, backoff=60, retry_on=(OSError, TaskTimeout), fail_on=(FileNotFoundError, LeaseLost))
async def grouped() -> None:
    async with asyncio.TaskGroup() as group:
        for error in RAISES:
            group.create_task(_raise(error))


@task(max_attempts=3, backoff=60, retry_on=ExceptionGroup)
async def retried_groups() -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(_raise(ValueError()))


@task(max_attempts=1)
async def two_waits() -> list[Any]:
    job = current_job()
    async with asyncio.TaskGroup() as group:
        waits = [group.create_task(job.areceive_event(name)) for name in ("first", "second")]
    return [wait.result() for wait in waits]


@task(max_attempts=1)
async def sleeper() -> str:
    async with asyncio.TaskGroup() as group:
        group.create_task(current_job().asleep("an hour", timedelta(hours=1)))
        group.create_task(asyncio.sleep(600))
    return "slept"


@task(max_attempts=2, backoff=0)
def sync_sleeper() -> None:
    try:
        current_job().sleep("an hour", timedelta(hours=1))
    except BaseException as error:
        raise BaseExceptionGroup("several", [BaseExceptionGroup("inner", [error])]) from None


@task
async def stubborn() -> None:
    STARTED.append(1)
    try:
        await asyncio.sleep(600)
    except asyncio.CancelledError as error:
        raise BaseExceptionGroup("stopped", [error]) from None


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    yield
    RAISES.clear()
    STARTED.clear()


def ran(*errors: BaseException) -> Job:
    """Return the job after one attempt that raised these."""
    RAISES[:] = errors
    job = enqueue(grouped)
    run_due()
    return fresh(job)


def seconds_left(job: Job) -> float:
    return (job.run_after - timezone.now()).total_seconds()


@pytest.mark.parametrize("tasks", [sleeper, sync_sleeper], ids=["TaskGroup", "nested group"])
def test_a_job_that_sleeps_in_a_group_sleeps(tasks: Any) -> None:
    job = enqueue(tasks)
    run_due()
    slept = fresh(job)
    assert (slept.status, slept.errors) == ("pending", [])
    assert 3500 < seconds_left(slept) <= 3600


def test_two_waits_in_a_group_follow_each_other() -> None:
    job = enqueue(two_waits)
    run_due()
    assert (fresh(job).status, fresh(job).errors) == ("pending", [])
    send_event(job, "second", 2)
    send_event(job, "first", 1)
    run_due()
    assert (fresh(job).status, fresh(job).result) == ("done", [1, 2])


def test_snooze_cancel_and_retry_later_count_in_a_group() -> None:
    snoozed = ran(Snooze(timedelta(minutes=5)), Snooze(timedelta(minutes=50)))
    assert (snoozed.status, snoozed.errors) == ("pending", [])
    assert 2900 < seconds_left(snoozed) <= 3000
    cancelled = ran(CancelJob("no longer needed"))
    assert (cancelled.status, cancelled.waiting_reason) == ("cancelled", "no longer needed")
    retried = ran(RetryLater(500))
    assert (retried.status, len(retried.errors)) == ("retry", 1)
    assert 400 < seconds_left(retried) <= 500


@pytest.mark.parametrize(
    ("errors", "status"),
    [
        ([CancelJob("x"), RetryLater(1), Snooze(timedelta(hours=1))], "cancelled"),
        ([Snooze(timedelta(hours=1)), RetryLater(1)], "retry"),
        ([OSError("lost"), Snooze(timedelta(hours=1))], "retry"),
        ([OSError("lost"), CancelJob("x")], "failed"),
        ([OSError("lost"), EventTimeout("over")], "failed"),
        ([OSError("lost"), FileNotFoundError("fails")], "failed"),
        ([OSError("lost"), ValueError("not retried")], "failed"),
        ([TaskTimeout()], "retry"),
        ([LeaseLost("lost")], "failed"),
    ],
)
@pytest.mark.promise("groups-lose-no-error")
def test_of_several_kinds_the_careful_one_wins_and_no_error_is_lost(
    errors: list[BaseException], status: str
) -> None:
    job = ran(*errors)
    assert job.status == status
    if status == "retry":
        longest = 3600 if any(isinstance(error, Snooze) for error in errors) else 60
        assert longest - 20 < seconds_left(job) <= longest
    if status != "cancelled":
        (entry,) = job.errors
        assert all(f"{type(error).__name__}" in entry["traceback"] for error in errors)


def test_retry_on_may_name_the_group_itself() -> None:
    job = enqueue(retried_groups)
    run_due()
    assert fresh(job).status == "retry"


def test_a_job_that_stops_on_request_in_a_group_is_cancelled() -> None:
    job = enqueue(stubborn)
    with working():
        until(lambda: STARTED)
        cancel(job)
        until(lambda: fresh(job).status == "cancelled")


def test_an_isolated_job_that_snoozes_in_a_group_runs_later() -> None:
    job = enqueue(snoozed_in_a_group)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE pgqueue_job_live SET crash_count = 1 WHERE id = %s", [job.pk])
    run_due()
    assert (fresh(job).status, fresh(job).errors) == ("pending", [])


def test_run_jobs_does_not_raise_a_retry_that_a_group_asks_for() -> None:
    RAISES[:] = [RetryLater(60), RetryLater(30)]
    enqueue(grouped)
    (once,) = run_jobs()
    assert once.outcome == "retry"
    RAISES[:] = [RetryLater(60), OSError("lost")]
    enqueue(grouped)
    with pytest.raises(ExceptionGroup):
        run_jobs()


def test_failures_in_groups_are_told_apart_by_what_is_in_them() -> None:
    def raised(*errors: Exception) -> ExceptionGroup[Exception]:
        return ExceptionGroup("group", errors)

    def caught(error: Exception) -> Exception:
        try:
            raise error
        except Exception as found:
            return found

    one = fingerprint(caught(raised(caught(ValueError()))), "tests.x")
    assert one == fingerprint(caught(raised(caught(ValueError()), caught(ValueError()))), "tests.x")
    assert one != fingerprint(caught(raised(caught(KeyError()))), "tests.x")
    anywhere = fingerprint(caught(raised(caught(TaskTimeout()))), "tests.x")
    assert anywhere == fingerprint(raised(TaskTimeout()), "tests.x")


def test_the_step_that_failed_in_a_group_is_known() -> None:
    error = ValueError()
    error._pgqueue_step = "pay"  # type: ignore[attr-defined]
    assert step_of(ExceptionGroup("group", [KeyError(), error])) == "pay"
