"""Tasks that do what they should not: each ends in the right state, and other jobs are not affected."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from io import StringIO
from typing import Any

import pytest

from django_pgqueue import enqueue, enqueue_many
from django_pgqueue.models import Job
from tests.app import hostile_tasks as hostile
from tests.app import worker_tasks as tasks
from tests.app.models import Entry
from tests.support.workers import fresh, run_due, until, working

pytestmark = pytest.mark.django_db(transaction=True)


def among_others(jobs: Iterable[Any], **options: Any) -> list[Job]:
    """Run calls of tasks on one thread, with other jobs before, between and after them that must succeed."""
    others = [enqueue(tasks.add, 0), enqueue(tasks.aid_everywhere)]
    made = []
    for call in jobs:
        made.append(enqueue(call.task, *call.args))
        others += [enqueue(tasks.add, len(made)), enqueue(tasks.abackend)]
    run_due(threads=1, **options)
    for other in others:
        assert (fresh(other).status, fresh(other).attempts) == ("done", 1), fresh(other).errors
    return [fresh(job) for job in made]


@pytest.fixture
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each failure is logged with its exception: printed, but not where pytest would repeat it."""
    handler = logging.StreamHandler(StringIO())
    monkeypatch.setattr(logging.getLogger("django_pgqueue.job"), "callHandlers", handler.handle)


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize(
    "task", [hostile.raise_, hostile.araise, hostile.raise_in_thread, hostile.raise_in_atomic]
)
def test_whatever_a_task_raises_is_a_failed_attempt(task: Any, settings: Any) -> None:
    settings.PGQUEUE = {"MAX_ERROR_BYTES": 2000}
    jobs = dict(zip(hostile.ERRORS, among_others(task.bind(kind) for kind in hostile.ERRORS), strict=True))
    for kind, job in jobs.items():
        assert (job.status, job.attempts, len(job.errors)) == ("failed", 2, 2), (kind, job.errors)
        for error in job.errors:
            assert len(error["message"]) + len(error["traceback"]) < 2100, kind
            # Python turns exceptions with a meaning for coroutines into a RuntimeError.
            assert kind.startswith("Stop") or error["class"].startswith(("builtins", "tests")), kind
    assert not Entry.objects.exists()


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("error", "why"),
        ("unprintable", "<str() of this CancelJob raised Base>"),
        ("none", "None"),
        ("bytes", "b'x'"),
    ],
)
def test_a_job_cancels_itself_for_whatever_reason(kind: str, reason: str) -> None:
    (job,) = among_others([hostile.cancel_oddly.bind(kind)])
    assert (job.status, job.attempts, job.waiting_reason) == ("cancelled", 1, reason)


def test_an_exception_that_breaks_the_worker_s_own_questions_fails_the_job() -> None:
    (job,) = among_others([hostile.cancel_oddly.bind("misleading")])
    assert (job.status, job.attempts, job.errors[0]["class"]) == ("failed", 1, "builtins.ZeroDivisionError")


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("task", [hostile.give, hostile.agive])
def test_whatever_a_task_returns_that_cannot_be_stored_fails_it_at_once(task: Any) -> None:
    jobs = dict(zip(hostile.RESULTS, among_others(task.bind(kind) for kind in hostile.RESULTS), strict=True))
    for kind, job in jobs.items():
        assert (job.status, job.attempts, job.result) == ("failed", 1, None), (kind, job.errors)
        if kind != "hostile dict":
            assert job.errors[0]["class"] == "django_pgqueue.exceptions.InvalidJSON", kind
    assert sorted(tasks.SEEN) == sorted(hostile.RESULTS)


@pytest.mark.parametrize("task", [hostile.breed, hostile.abreed, hostile.breed_two])
def test_a_job_that_enqueues_itself_for_ever_starves_nobody(task: Any) -> None:
    enqueue(task, "b")
    with working(threads=2) as worker:
        assert tasks.gate("b runs").wait(tasks.DEADLINE)
        others = enqueue_many(tasks.add.bind(number) for number in range(20)).ids
        others += enqueue_many(tasks.aid_everywhere.bind() for _ in range(5)).ids
        until(lambda: Job.objects.filter(pk__in=others, status="done").count() == 25)
        worker.stop()
        assert Job.objects.filter(pk__in=others, attempts=1).count() == 25
    live = Job.objects.filter(task_path=f"tests.app.hostile_tasks.{task.func.__name__}").exclude(
        status="done"
    )
    assert set(live.values_list("status", "attempts")) == {("pending", 0)}
    tasks.gate("b").set()
    run_due()
    assert not live.exists()


@pytest.mark.parametrize(
    ("task", "then", "status", "errors"),
    [
        (hostile.cancel_itself, "look", "cancelled", 0),
        (hostile.cancel_itself, "return", "done", 0),
        (hostile.cancel_itself, "raise", "cancelled", 1),
        (hostile.acancel_itself, "await", "cancelled", 0),
        (hostile.cancel_itself_in_atomic, "return", "done", 0),
        # The request is rolled back with the rest.
        (hostile.cancel_itself_in_atomic, "raise", "failed", 3),
    ],
)
def test_a_job_that_cancels_itself(task: Any, then: str, status: str, errors: int) -> None:
    (job,) = among_others([task.bind(then)])
    assert (job.status, len(job.errors)) == (status, errors)
    assert Entry.objects.exists() == (task is hostile.cancel_itself_in_atomic and status == "done")


@pytest.mark.parametrize("then", ["return", "raise"])
def test_an_async_job_that_cancels_itself_and_ends_at_once(then: str) -> None:
    """The request may or may not reach the job before it ends. The job has finished in either case."""
    (job,) = among_others([hostile.acancel_itself.bind(then)])
    assert job.status in ("done", "cancelled") if then == "return" else "cancelled"
    assert job.attempts == 1


@pytest.mark.parametrize("then", ["return", "raise"])
@pytest.mark.parametrize(
    "task", [hostile.delete_own_row, hostile.adelete_own_row, hostile.delete_own_row_in_atomic]
)
def test_a_job_that_deletes_its_own_row_is_gone(
    task: Any, then: str, caplog: pytest.LogCaptureFixture
) -> None:
    others = enqueue_many(tasks.add.bind(number) for number in range(5)).ids
    job = enqueue(task, then)
    others += enqueue_many(tasks.add.bind(number) for number in range(5)).ids
    run_due(threads=1)
    assert Job.objects.filter(pk__in=others, status="done", attempts=1).count() == 10
    if task is hostile.delete_own_row_in_atomic:
        # The deletion is rolled back with the rest, for a finish that finds nothing is refused.
        assert not Entry.objects.exists()
        failed = fresh(job)
        assert (failed.status, failed.attempts) == ("failed", 1)
        expected = "after it" if then == "raise" else "there is no live job"
        assert expected in failed.errors[0]["message"]
    else:
        assert not Job.objects.filter(pk=job.pk).exists()
        assert "was refused" in caplog.text


def test_a_deletion_that_is_never_committed_never_was() -> None:
    (job,) = among_others([hostile.delete_own_row_and_leave_it_open.bind()])
    assert (job.status, job.attempts) == ("retry", 1)
    assert "has left a transaction open" in job.errors[0]["message"]


def test_language_time_zone_and_context_variables_do_not_leak() -> None:
    activate, aactivate = hostile.activate.bind(), hostile.aactivate.bind()
    look, alook = hostile.context.bind(), hostile.acontext.bind()
    jobs = among_others([look, alook, activate, look, alook, aactivate, look, alook])
    found = [job.result for job in jobs if job.result is not None]
    clean = ["en-us", "UTC", 28]
    assert found == [clean, clean + clean] * 3


def test_a_thread_that_outlives_its_job_harms_nobody() -> None:
    (job,) = among_others([hostile.leave_thread.bind("t")])
    assert job.status == "done"
    assert tasks.gate("t runs").wait(tasks.DEADLINE)
    tasks.gate("t").set()
    assert tasks.gate("t ended").wait(tasks.DEADLINE)
    assert tasks.SEEN == [[False, False, True]]
    assert Entry.objects.count() == 1
