"""Steps: a job that runs again goes on after the last recorded one."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone
from syrupy.assertion import SnapshotAssertion

from django_pgqueue import StepError, cancel, enqueue, retry, send_event, step
from django_pgqueue.exceptions import InvalidJSON, JobFinished
from django_pgqueue.models import Job
from django_pgqueue.models.changes import run_now
from django_pgqueue.models.job import Step
from tests.app import step_tasks as tasks
from tests.app.models import Entry
from tests.support.wording import lasting
from tests.support.workers import fresh, ran, run_due, run_here

pytestmark = pytest.mark.django_db

RAN = tasks.RAN


@pytest.fixture(autouse=True)
def _nothing_ran() -> Iterator[None]:
    RAN.clear()  # of tests of other modules
    yield
    RAN.clear()
    tasks.FAILURES.clear()


def fail(**names: int) -> None:
    """Let the steps with these names fail so many times."""
    for name, times in names.items():
        tasks.FAILURES[name.replace("_", "-")] = [ValueError(name) for _ in range(times)]


def names_of(job: Job) -> list[str]:
    return [step["name"] for step in fresh(job).steps or []]


@pytest.mark.django_db(transaction=True)
@pytest.mark.promise("step-once-recorded")
def test_a_retry_goes_on_after_the_recorded_steps() -> None:
    for pipeline in (tasks.pipeline, tasks.async_pipeline):
        fail(step_1=1)
        job = enqueue(pipeline)
        run_due()
        done = fresh(job)
        assert (done.status, done.result, done.attempts) == ("done", [0, 1, 2], 2)
        assert (RAN.count("step-0"), RAN.count("step-1")) == (1, 2)
        assert sorted(names_of(job)) == ["step-0", "step-1", "step-2"]
        assert not Step.objects.exists()
        RAN.clear()


@pytest.mark.promise("step-budget")
def test_each_step_has_the_whole_budget() -> None:
    fail(step_0=1, step_1=1, step_2=1)
    done = ran(tasks.pipeline.bind())  # two attempts
    assert (done.status, done.attempts, done.forgiven_attempts) == ("done", 4, 3)


def test_a_step_that_uses_up_its_budget_fails_the_job_and_a_retry_goes_on_there() -> None:
    fail(step_1=2)
    failed = ran(tasks.pipeline.bind())
    assert (failed.status, failed.attempts, failed.current_step) == ("failed", 2, "step-1")
    assert [error["step"] for error in failed.errors] == ["step-1", "step-1"]
    (entry,) = failed.steps or []
    assert (entry["name"], entry["result"], entry["attempt"]) == ("step-0", 0, 1)
    assert not Step.objects.exists()
    assert retry(failed) == 1
    run_here()
    done = fresh(failed)
    assert (done.status, done.result, RAN.count("step-0")) == ("done", [0, 1, 2], 1)
    assert {"result", "inputs"}.isdisjoint((done.steps or [{}])[0])


@pytest.mark.promise("step-once-recorded")
def test_a_done_job_that_is_retried_starts_from_the_beginning() -> None:
    job = ran(tasks.pipeline.bind(1))
    assert retry(job, done=True) == 1
    assert (fresh(job).marks, fresh(job).current_step) == (0, "")
    run_here()
    assert RAN == ["step-0", "step-0"]


def test_a_cancelled_job_keeps_its_steps() -> None:
    job = ran(tasks.sleepy.bind())
    assert cancel(job) == 1
    assert names_of(job) == ["before", "cool-down"]
    assert not Step.objects.exists()
    assert retry(job) == 1
    assert Step.objects.filter(job_id=job.pk).count() == 2
    run_here()  # it still sleeps
    assert (fresh(job).waiting_reason, RAN) == ("sleeps: cool-down", ["before"])


@pytest.mark.parametrize(("call", "failures", "result", "attempts", "done"), [
    pytest.param(tasks.tuples.bind(), {}, [1, "two"], 1, ["pair"], id="results as they are read later"),
    pytest.param(
        tasks.retried_step.bind(), {"flaky": 1}, "second", 1, ["flaky"], id="again in the same attempt"
    ),
    pytest.param(
        tasks.decorated.bind(), {"after": 1}, [2, 4, "x"], 2, ["double", "second", "pay"], id="functions"
    ),
    pytest.param(tasks.async_decorated.bind(), {}, 8, 1, ["adouble"], id="coroutine functions"),
    pytest.param(
        tasks.pay.bind("x"), {"charge": 1, "after": 1}, "x", 3, ["charge"],
        id="an atomic step takes effect once",
    ),
])  # fmt: skip
@pytest.mark.promise("atomic-step", case="an atomic step takes effect once")
def test_what_a_step_may_be(call: Any, failures: Any, result: Any, attempts: int, done: list[str]) -> None:
    fail(**failures)
    job = ran(call)
    assert (job.status, job.result, job.attempts) == ("done", result, attempts)
    assert names_of(job) == done
    assert Entry.objects.filter(key="x").count() == (result in ([2, 4, "x"], "x"))
    assert RAN.count("double-1") == (call.task is tasks.decorated)
    assert RAN.count("charge") == 2 * (call.task is tasks.pay), "the first was rolled back"


def test_where_no_job_runs_a_step_is_a_function() -> None:
    assert tasks.double(4) == 8
    assert tasks.double.named("x")(4) == 8
    with pytest.raises(StepError, match="no async transactions"):

        @step(atomic=True)
        async def never() -> None: ...


MISUSES = [
    tasks.run_names.bind("a", "a"), tasks.run_names.bind(""), tasks.run_names.bind("x" * 101),
    tasks.run_names.bind("a\nb"), tasks.run_names.bind("a", "b", "c"), tasks.run_value.bind("object()"),
    tasks.run_value.bind("'x' * 2_000_000"), tasks.calls_the_function.bind(), tasks.awaits_a_function.bind(),
    tasks.in_transaction.bind("step"), tasks.in_transaction.bind("atomic_step"), tasks.in_atomic_task.bind(),
    tasks.swallows.bind(), tasks.swallows_and_steps.bind(),
]  # fmt: skip


def test_misuse_is_a_clear_error(
    settings: Any, monkeypatch: pytest.MonkeyPatch, wording: SnapshotAssertion
) -> None:
    settings.PGQUEUE = {"MAX_ATTEMPTS": 1}
    monkeypatch.setattr("django_pgqueue.worker.executor.steps.MOST_STEPS", 2)
    jobs = [ran(call) for call in MISUSES]
    assert {(job.status, len(job.errors)) for job in jobs} == {("failed", 1)}
    assert "\n".join(job.errors[0]["message"] for job in jobs) == wording


def test_what_changes_from_attempt_to_attempt_is_a_warning(
    caplog: pytest.LogCaptureFixture, wording: SnapshotAssertion
) -> None:
    caplog.set_level("WARNING", "django_pgqueue.worker")
    jobs = []
    for names, times in ((("same", "same"), 1), (("old", "new"), 2)):
        fail(after=1)
        jobs.append(ran(tasks.changing.bind(*names)).pk)
        assert RAN.count("changing") == times
        RAN.clear()
    messages = [record.getMessage() for record in caplog.records if record.name != "django_pgqueue.job"]
    assert lasting("\n".join(messages), first=f"job {jobs[0]}", second=f"job {jobs[1]}") == wording


# -- sleeps and events


@pytest.mark.promise("sleep-costs-nothing")
def test_a_sleep_frees_the_worker_and_spends_no_attempt_until_somebody_ends_it() -> None:
    asleep = ran(tasks.sleepy.bind())
    assert (asleep.status, asleep.attempts, asleep.waiting_reason) == ("pending", 0, "sleeps: cool-down")
    left = asleep.run_after - timezone.now()
    assert timedelta(hours=1, minutes=59) < left < timedelta(hours=2)
    assert asleep.current_step == "cool-down"
    assert run_now(asleep) == 1
    run_here()
    done = fresh(asleep)
    assert (done.status, done.result, RAN) == ("done", "awake", ["before", "after"])


def test_a_job_that_sleeps_does_not_expire() -> None:
    job = enqueue(tasks.short_lived)
    assert job.expires_at is not None
    run_here()
    assert fresh(job).expires_at is None


@pytest.mark.parametrize("task", [tasks.approval, tasks.async_approval])
def test_an_event_continues_the_job(task: Any) -> None:
    waiting = ran(task.bind())
    assert waiting.waiting_reason == "waits for the event approved"
    assert waiting.run_after - timezone.now() > timedelta(days=30_000)
    assert send_event(waiting, "approved", {"by": "ann"})
    assert not send_event(waiting, "approved", {"by": "bob"})
    run_here()
    done = fresh(waiting)
    assert (done.status, done.result) == ("done", {"by": "ann"})
    assert ["ask"][: task is tasks.approval] == RAN
    with pytest.raises(JobFinished, match=f"Job {done.pk} cannot receive the event 'approved'"):
        send_event(done, "approved")


def test_an_event_may_come_before_the_job_runs() -> None:
    job = enqueue(tasks.approval)
    assert send_event(job, "approved", "early")
    run_here()
    assert (fresh(job).status, fresh(job).result) == ("done", "early")


def test_a_wait_that_times_out_fails_the_job_and_a_retry_waits_again() -> None:
    failed = ran(tasks.approval.bind(0))
    assert (failed.status, failed.attempts) == ("failed", 1)
    assert failed.errors[0]["class"] == "django_pgqueue.exceptions.EventTimeout"
    assert retry(failed) == 1
    assert send_event(failed, "approved", "late")
    run_here()
    assert (fresh(failed).status, fresh(failed).result, RAN) == ("done", "late", ["ask"])


def test_an_event_with_a_bad_name_or_value_is_refused() -> None:
    job = enqueue(tasks.approval)
    for name in ("", "x" * 101, 5):
        with pytest.raises((TypeError, ValueError), match="event"):
            send_event(job, name)  # type: ignore[arg-type]
    with pytest.raises(InvalidJSON, match=r"^Unsupported type: value is of type object"):
        send_event(job, "approved", object())
