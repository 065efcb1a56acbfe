"""Steps: a job that runs again goes on after the last recorded one."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from django_pgqueue import StepError, cancel, enqueue, retry, send_event, step
from django_pgqueue.exceptions import InvalidJSON, JobFinished
from django_pgqueue.models import Job
from django_pgqueue.models.changes import run_now
from django_pgqueue.models.job import Step
from tests.app import step_tasks as tasks
from tests.app.models import Entry
from tests.support.workers import fresh, run_due

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def ran() -> Iterator[list[str]]:
    yield tasks.RAN
    tasks.RAN.clear()
    tasks.FAILURES.clear()


def fail(**names: int) -> None:
    """Let the steps with these names fail so many times."""
    for name, times in names.items():
        tasks.FAILURES[name.replace("_", "-")] = [ValueError(name) for _ in range(times)]


def names_of(job: Job) -> list[str]:
    return [step["name"] for step in fresh(job).steps or []]


@pytest.mark.parametrize("pipeline", [tasks.pipeline, tasks.async_pipeline])
@pytest.mark.promise("step-once-recorded")
def test_a_retry_goes_on_after_the_recorded_steps(ran: list[str], pipeline: Any) -> None:
    fail(step_1=1)
    job = enqueue(pipeline)
    run_due()
    done = fresh(job)
    assert (done.status, done.result, done.attempts) == ("done", [0, 1, 2], 2)
    assert ran.count("step-0") == 1
    assert ran.count("step-1") == 2
    assert sorted(names_of(job)) == ["step-0", "step-1", "step-2"]
    assert not Step.objects.exists()


@pytest.mark.promise("step-budget")
def test_each_step_has_the_whole_budget(ran: list[str]) -> None:
    fail(step_0=1, step_1=1, step_2=1)
    job = enqueue(tasks.pipeline)  # two attempts
    run_due()
    done = fresh(job)
    assert (done.status, done.attempts, done.forgiven_attempts) == ("done", 4, 3)


def test_a_step_that_uses_up_its_budget_fails_the_job_and_a_retry_goes_on_there(ran: list[str]) -> None:
    fail(step_1=2)
    job = enqueue(tasks.pipeline)
    run_due()
    failed = fresh(job)
    assert (failed.status, failed.attempts, failed.current_step) == ("failed", 2, "step-1")
    assert [error["step"] for error in failed.errors] == ["step-1", "step-1"]
    assert [(entry["name"], entry["result"], entry["attempt"]) for entry in failed.steps or []] == [
        ("step-0", 0, 1)
    ]
    assert not Step.objects.exists()
    assert retry(job) == 1
    run_due()
    assert (fresh(job).status, fresh(job).result) == ("done", [0, 1, 2])
    assert ran.count("step-0") == 1
    assert {"result", "inputs"}.isdisjoint((fresh(job).steps or [{}])[0])


@pytest.mark.promise("step-once-recorded")
def test_a_done_job_that_is_retried_starts_from_the_beginning(ran: list[str]) -> None:
    job = enqueue(tasks.pipeline, 1)
    run_due()
    assert retry(job, done=True) == 1
    assert (fresh(job).marks, fresh(job).current_step) == (0, "")
    run_due()
    assert ran == ["step-0", "step-0"]


def test_a_cancelled_job_keeps_its_steps(ran: list[str]) -> None:
    job = enqueue(tasks.sleepy)
    run_due()
    assert cancel(job) == 1
    cancelled = fresh(job)
    assert [entry["name"] for entry in cancelled.steps or []] == ["before", "cool-down"]
    assert not Step.objects.exists()
    assert retry(job) == 1
    assert Step.objects.filter(job_id=job.pk).count() == 2
    run_due()  # it still sleeps
    assert (fresh(job).waiting_reason, ran) == ("sleeps: cool-down", ["before"])


def test_the_first_call_returns_what_the_second_would(ran: list[str]) -> None:
    job = enqueue(tasks.tuples)
    run_due()
    assert fresh(job).result == [1, "two"]


def test_a_step_that_failed_may_be_tried_again_in_the_same_attempt(ran: list[str]) -> None:
    fail(flaky=1)
    job = enqueue(tasks.retried_step)
    run_due()
    assert (fresh(job).status, fresh(job).result, fresh(job).attempts) == ("done", "second", 1)


@pytest.mark.parametrize(
    ("call", "problem"),
    [
        (tasks.run_names.bind("a", "a"), "has used the name 'a' before"),
        (tasks.run_names.bind(""), "1 to 100 printable characters, not ''"),
        (tasks.run_names.bind("x" * 101), "1 to 100 printable characters"),
        (tasks.run_names.bind("a\nb"), "1 to 100 printable characters"),
        (tasks.run_value.bind("object()"), "The result of the step 'bad' cannot be recorded"),
        (tasks.run_value.bind("'x' * 2_000_000"), "cannot be recorded"),
        (tasks.calls_the_function.bind(), "step('bad', ...) takes a function, not None."),
        (tasks.awaits_a_function.bind(), "astep('bad', ...) takes a coroutine function."),
        (tasks.in_transaction.bind("step"), "was called in transaction.atomic"),
        (tasks.in_transaction.bind("atomic_step"), "was called in transaction.atomic"),
        (tasks.in_atomic_task.bind(), "a task with atomic=True is one step"),
        (tasks.swallows.bind(), "Let the exception Suspended pass"),
        (tasks.swallows_and_steps.bind(), "Let the exception Suspended pass"),
    ],
)
def test_misuse_is_a_clear_error(call: Any, problem: str, settings: Any) -> None:
    settings.PGQUEUE = {"MAX_ATTEMPTS": 1}
    job = enqueue(call.task, *call.args)
    run_due()
    failed = fresh(job)
    assert (failed.status, len(failed.errors)) == ("failed", 1)
    assert problem in failed.errors[0]["message"]


def test_a_job_has_at_most_so_many_steps(monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    settings.PGQUEUE = {"MAX_ATTEMPTS": 1}
    monkeypatch.setattr("django_pgqueue.worker.executor.steps.MOST_STEPS", 2)
    job = enqueue(tasks.run_names, "a", "b", "c")
    run_due()
    assert "has 2 steps, which is the limit" in fresh(job).errors[0]["message"]


@pytest.mark.promise("atomic-step")
def test_an_atomic_step_takes_effect_once(ran: list[str]) -> None:
    fail(charge=1, after=1)
    job = enqueue(tasks.pay, "five")
    run_due()
    assert (fresh(job).status, fresh(job).result, fresh(job).attempts) == ("done", "five", 3)
    assert ran == ["charge", "charge", "after", "after"]
    assert Entry.objects.filter(key="five").count() == 1  # the first was rolled back


def test_other_arguments_are_a_warning(ran: list[str], caplog: pytest.LogCaptureFixture) -> None:
    fail(after=1)
    enqueue(tasks.changing, "same", "same")
    with caplog.at_level(logging.WARNING, "django_pgqueue"):
        run_due()
    assert "the step 'same' was recorded with other arguments" in caplog.text
    assert ran.count("changing") == 1


def test_a_renamed_step_runs_again_and_is_a_warning(ran: list[str], caplog: pytest.LogCaptureFixture) -> None:
    fail(after=1)
    enqueue(tasks.changing, "old", "new")
    with caplog.at_level(logging.WARNING, "django_pgqueue"):
        run_due()
    assert "did not use the recorded steps 'old'" in caplog.text
    assert ran.count("changing") == 2


@pytest.mark.promise("sleep-costs-nothing")
def test_a_sleep_frees_the_worker_and_spends_no_attempt(ran: list[str]) -> None:
    job = enqueue(tasks.sleepy)
    run_due()
    asleep = fresh(job)
    assert (asleep.status, asleep.attempts, asleep.waiting_reason) == (
        "retry",
        1 - 1,
        "sleeps: cool-down",
    ) or (asleep.status, asleep.attempts, asleep.waiting_reason) == ("pending", 0, "sleeps: cool-down")
    left = asleep.run_after - timezone.now()
    assert timedelta(hours=1, minutes=59) < left < timedelta(hours=2)
    assert asleep.current_step == "cool-down"


def test_a_job_that_is_run_now_ends_its_sleep(ran: list[str]) -> None:
    job = enqueue(tasks.sleepy)
    run_due()
    assert run_now(job) == 1
    run_due()
    assert (fresh(job).status, fresh(job).result, ran) == ("done", "awake", ["before", "after"])


def test_a_job_that_sleeps_does_not_expire(ran: list[str]) -> None:
    job = enqueue(tasks.short_lived)
    assert job.expires_at is not None
    run_due()
    assert fresh(job).expires_at is None


def test_a_signal_continues_the_job(ran: list[str]) -> None:
    job = enqueue(tasks.approval)
    run_due()
    waiting = fresh(job)
    assert waiting.waiting_reason == "waits for the event approved"
    assert waiting.run_after - timezone.now() > timedelta(days=30_000)
    assert send_event(job, "approved", {"by": "ann"})
    assert not send_event(job, "approved", {"by": "bob"})
    run_due()
    assert (fresh(job).status, fresh(job).result, ran) == ("done", {"by": "ann"}, ["ask"])
    with pytest.raises(JobFinished, match=f"Job {job.pk} cannot receive the event 'approved'"):
        send_event(job, "approved")


def test_a_signal_may_come_before_the_job_runs(ran: list[str]) -> None:
    job = enqueue(tasks.approval)
    assert send_event(job, "approved", "early")
    run_due()
    assert (fresh(job).status, fresh(job).result) == ("done", "early")


def test_a_wait_that_times_out_fails_the_job_and_a_retry_waits_again(ran: list[str]) -> None:
    job = enqueue(tasks.approval, 0)
    run_due()
    failed = fresh(job)
    assert (failed.status, failed.attempts) == ("failed", 1)
    assert failed.errors[0]["class"] == "django_pgqueue.exceptions.EventTimeout"
    assert retry(job) == 1
    assert send_event(job, "approved", "late")
    run_due()
    assert (fresh(job).status, fresh(job).result, ran) == ("done", "late", ["ask"])


def test_async_tasks_wait_too(ran: list[str]) -> None:
    job = enqueue(tasks.async_approval)
    run_due()
    assert fresh(job).waiting_reason == "waits for the event approved"
    send_event(job, "approved", 1)
    run_due()
    assert (fresh(job).status, fresh(job).result) == ("done", 1)


@pytest.mark.parametrize("name", ["", "x" * 101, 5])
def test_a_bad_name_of_a_signal_is_refused(name: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="event"):
        send_event(enqueue(tasks.approval), name)


def test_a_bad_value_of_a_signal_is_refused() -> None:
    with pytest.raises(InvalidJSON, match=r"^Unsupported type: value is of type object"):
        send_event(enqueue(tasks.approval), "approved", object())


def test_functions_can_be_steps(ran: list[str]) -> None:
    fail(after=1)
    job = enqueue(tasks.decorated)
    run_due()
    assert (fresh(job).status, fresh(job).result) == ("done", [2, 4, "x"])
    assert ran == ["double-1", "double-2", "after", "after"]
    assert names_of(job) == ["double", "second", "pay"]
    assert Entry.objects.filter(key="x").count() == 1


def test_coroutine_functions_can_be_steps(ran: list[str]) -> None:
    job = enqueue(tasks.async_decorated)
    run_due()
    assert (fresh(job).result, names_of(job)) == (8, ["adouble"])


def test_where_no_job_runs_a_step_is_a_function() -> None:
    assert tasks.double(4) == 8
    assert tasks.double.named("x")(4) == 8


def test_an_atomic_coroutine_cannot_be_a_step() -> None:
    async def f() -> None: ...

    with pytest.raises(StepError, match="no async transactions"):
        step(atomic=True)(f)
