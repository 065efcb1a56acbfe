"""Failed attempts: which are retried, when, what is stored on the job, and when it fails for good."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from django_pgqueue import RetryLater, enqueue, enqueue_many, retry
from django_pgqueue.compat import TaskResultStatus
from django_pgqueue.models import Job, Queue
from tests.app import worker_tasks as tasks
from tests.support.workers import fresh, run_due

pytestmark = pytest.mark.django_db(transaction=True)


def wait(job: Job) -> float:
    """Seconds from the end of the last attempt to the next."""
    job = fresh(job)
    assert job.status in ("retry", "pending"), job.status
    return (job.run_after - datetime.fromisoformat(job.errors[-1]["finished_at"])).total_seconds()


@pytest.mark.promise("retried")
def test_a_job_that_fails_once_runs_again() -> None:
    job = enqueue(tasks.fail_once)
    run_due()
    done = fresh(job)
    assert (done.status, done.result, done.attempts, len(done.errors)) == ("done", "second", 2, 1)
    assert done.worker_ids == [str(done.worker)] * 2


@pytest.mark.promise("errors-kept")
def test_the_last_failed_attempt_fails_the_job_and_all_are_remembered() -> None:
    job = enqueue(tasks.fail, "broken")
    producer = run_due()
    failed = fresh(job)
    assert (failed.status, failed.attempts, failed.result) == ("failed", 3, None)
    assert [error["attempt"] for error in failed.errors] == [1, 2, 3]
    for error in failed.errors:
        assert error["class"] == "builtins.ValueError"
        assert error["message"] == "broken"
        assert error["traceback"].startswith("Traceback (most recent call last):")
        assert "in fail\n" in error["traceback"]
        assert "django_pgqueue/worker" not in error["traceback"]
        assert error["worker"] == str(producer.worker)
        assert error["started_at"] <= error["finished_at"]
    assert len(failed.error_fingerprint) == 40


def test_failures_with_one_cause_have_one_fingerprint() -> None:
    one, two = enqueue(tasks.fail, "one"), enqueue(tasks.fail, "two")
    other = enqueue(tasks.choosy, "key")
    run_due()
    assert fresh(one).error_fingerprint == fresh(two).error_fingerprint
    assert fresh(other).error_fingerprint != fresh(one).error_fingerprint


@pytest.mark.parametrize(("name", "attempts"), [("key", 1), ("type", 1), ("index", 3)])
@pytest.mark.promise("fail-on")
def test_fail_on_and_retry_on(name: str, attempts: int) -> None:
    job = enqueue(tasks.choosy, name)
    run_due()
    assert (fresh(job).status, fresh(job).attempts) == ("failed", attempts)


@pytest.mark.promise("backoff")
def test_the_wait_doubles_with_jitter_up_to_the_ceiling(settings: Any) -> None:
    settings.PGQUEUE = {"BACKOFF_BASE": 100, "BACKOFF_CEILING": 150}
    jobs = [enqueue(tasks.slow_backoff) for _ in range(3)]
    run_due()
    assert all(50 <= wait(job) <= 100.1 for job in jobs)
    assert len({round(wait(job), 3) for job in jobs}) == 3
    Job.objects.update(run_after=timezone.now())
    run_due()
    assert all(75 <= wait(job) <= 150.1 for job in jobs)


def test_a_queue_has_its_own_base_and_ceiling() -> None:
    Queue.objects.create(name="patient", backoff_base=10_000, backoff_ceiling=10_000)
    Queue.objects.create(name="based", backoff_base=1_000)
    Queue.objects.create(name="capped", backoff_ceiling=2)
    jobs = {
        name: enqueue(tasks.slow_backoff.using(queue_name=name))
        for name in ("patient", "based", "capped", "other")
    }
    run_due()
    assert 5_000 <= wait(jobs["patient"]) <= 10_000.1
    assert 500 <= wait(jobs["based"]) <= 1_000.1
    assert 1 <= wait(jobs["capped"]) <= 2.1
    assert 7.5 <= wait(jobs["other"]) <= 15.1


def test_backoff_as_seconds_and_as_a_sequence() -> None:
    constant, sequence = enqueue(tasks.constant_backoff), enqueue(tasks.sequence_backoff)
    waits = []
    for _ in range(3):
        Job.objects.update(run_after=timezone.now())
        run_due()
        waits.append((round(wait(constant)), round(wait(sequence))))
    assert waits == [(100, 100), (100, 200), (100, 200)]


def test_a_callable_backoff_gets_the_failed_attempt() -> None:
    job = enqueue(tasks.called_backoff, 500)
    producer = run_due()
    assert round(wait(job)) == 500
    ((error, result),) = tasks.SEEN
    assert isinstance(error, ValueError)
    assert result.id == str(job.pk)
    assert result.status == TaskResultStatus.FAILED
    assert result.attempts == 1
    assert result.worker_ids == [str(producer.worker)]
    assert result.errors[-1].exception_class is ValueError
    assert "called_backoff" in result.errors[-1].traceback
    assert result.args == [500]


def test_a_callable_backoff_that_says_none_fails_the_job() -> None:
    job = enqueue(tasks.called_backoff, None)
    run_due()
    assert (fresh(job).status, fresh(job).attempts) == ("failed", 1)


@pytest.mark.parametrize("answer", ["raise", "soon", -1, True])
@pytest.mark.promise("broken-backoff")
def test_a_callable_backoff_that_is_broken_costs_nothing(answer: Any) -> None:
    job = enqueue(tasks.called_backoff, answer)
    run_due()
    assert 7.5 <= wait(job) <= 15.1


def test_a_callable_backoff_is_not_asked_after_the_last_attempt() -> None:
    job = enqueue(tasks.called_backoff, 0)
    run_due()
    assert (fresh(job).status, fresh(job).attempts, len(tasks.SEEN)) == ("failed", 3, 2)


def test_retry_later_says_when_and_spends_an_attempt() -> None:
    job = enqueue(tasks.retry_later, 50)
    run_due()
    assert round(wait(job)) == 50
    assert fresh(job).errors[-1]["class"] == f"{RetryLater.__module__}.RetryLater"
    Job.objects.update(run_after=timezone.now())
    run_due()
    assert (fresh(job).status, fresh(job).attempts) == ("failed", 2)


def test_retry_later_without_a_time_asks_the_backoff() -> None:
    job = enqueue(tasks.retry_later)
    run_due()
    assert round(wait(job)) == 1000


@pytest.mark.parametrize("absolute", [False, True])
@pytest.mark.promise("snooze-costs-nothing")
def test_snooze_spends_no_attempt(absolute: bool) -> None:
    job = enqueue(tasks.snooze, 600, absolute=absolute)
    before = timezone.now()
    run_due()
    snoozed = fresh(job)
    assert (snoozed.status, snoozed.attempts, snoozed.errors) == ("pending", 0, [])
    assert timedelta(seconds=598) < snoozed.run_after - before < timedelta(seconds=620)


def test_snooze_again_and_again_never_fails() -> None:
    job = enqueue(tasks.snooze, 0.0)
    job.refresh_from_db()
    for _ in range(3):
        Job.objects.update(run_after=timezone.now())
        # The job is due again at once, so a burst would never end.
        run_due(max_jobs=1)
    assert (fresh(job).status, fresh(job).attempts) == ("pending", 0)


def test_snooze_to_the_end_of_time_is_a_century() -> None:
    job = enqueue(tasks.snooze_to_the_end_of_time)
    run_due()
    assert 2100 < fresh(job).run_after.year < 2200
    run_due()


def test_cancel_job_ends_it_with_the_reason() -> None:
    job = enqueue(tasks.cancel_itself, "no such customer")
    run_due()
    ended = fresh(job)
    assert (ended.status, ended.attempts, ended.errors) == ("cancelled", 1, [])
    assert ended.waiting_reason == "no such customer\\x00"  # the text of the task may contain any character


@pytest.mark.promise("retry")
def test_retry_gives_a_fresh_budget_and_keeps_the_past() -> None:
    job = enqueue(tasks.fail)
    run_due()
    assert fresh(job).attempts == 3
    assert retry(job) == 1
    assert (fresh(job).status, fresh(job).attempts) == ("pending", 3)
    run_due()
    failed = fresh(job)
    assert (failed.status, failed.attempts, failed.forgiven_attempts) == ("failed", 6, 3)
    assert [error["attempt"] for error in failed.errors] == [1, 2, 3, 4, 5, 6]


def test_retry_of_a_done_job_runs_it_again() -> None:
    job = enqueue(tasks.see, 1)
    run_due()
    assert retry(job, done=True) == 1
    run_due()
    assert (tasks.SEEN, fresh(job).status, fresh(job).attempts) == ([1, 1], "done", 2)


def test_only_the_first_and_the_last_errors_stay(settings: Any) -> None:
    settings.PGQUEUE = {"KEEP_ERRORS": 2}
    job = enqueue(tasks.fail)
    for _ in range(3):
        run_due()
        retry(job)
    assert fresh(job).attempts == 9
    assert [error["attempt"] for error in fresh(job).errors] == [1, 2, 8, 9]
    assert len(fresh(job).worker_ids) == 9


@pytest.mark.parametrize("kind", ["unprintable", "unpicklable", "nul", "surrogate", "huge", "group", "deep"])
def test_an_odd_exception_fails_its_job_and_no_other(
    kind: str, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The log of the failure would hold a surrogate, which pytest-xdist cannot send.
    monkeypatch.setattr(logging.getLogger("django_pgqueue.job"), "disabled", True)
    settings.PGQUEUE = {"MAX_ERROR_BYTES": 2000}
    before, odd, after = enqueue(tasks.noop), enqueue(tasks.raise_odd, kind), enqueue(tasks.noop)
    run_due(threads=1)
    assert (fresh(before).status, fresh(odd).status, fresh(after).status) == ("done", "failed", "done")
    (error,) = fresh(odd).errors
    assert len((error["message"] + error["traceback"]).encode()) < 2000 + 100
    expected = {
        "unprintable": "<str() of this Unprintable raised SystemExit>", "unpicklable": "", "nul": "a\\x00b",
        "surrogate": "a\\ud800b", "group": "many (2 sub-exceptions)",
    }  # fmt: skip
    if kind in expected:
        assert error["message"] == expected[kind]
    if kind == "huge":
        assert "bytes left out" in error["message"]


@pytest.mark.parametrize("kind", ["set", "nan", "nul", "object", "huge"])
@pytest.mark.promise("bad-result-fails")
def test_a_result_that_cannot_be_stored_fails_without_a_retry(kind: str) -> None:
    job, other = enqueue(tasks.bad_result, kind), enqueue(tasks.noop)
    run_due()
    failed = fresh(job)
    assert (failed.status, failed.attempts, tasks.SEEN) == ("failed", 1, [kind])
    assert failed.errors[0]["class"] == "django_pgqueue.exceptions.InvalidJSON"
    assert "result" in failed.errors[0]["message"]
    assert fresh(other).status == "done"


@pytest.mark.parametrize(
    "name", ["SystemExit", "KeyboardInterrupt", "GeneratorExit", "StopIteration", "CancelledError"]
)
@pytest.mark.parametrize("kind", ["sync", "async", "child"])
def test_what_is_no_exception_fails_the_job_and_spares_the_worker(kind: str, name: str) -> None:
    task = {"sync": tasks.raise_base, "async": tasks.araise_base, "child": tasks.child_raises_base}[kind]
    job = enqueue(task, name)
    run_due()
    failed = fresh(job)
    assert (failed.status, failed.attempts) == ("failed", 1)
    other = enqueue(tasks.aid_everywhere)
    run_due()
    assert fresh(other).status == "done"


def test_arguments_that_do_not_fit_the_task_fail_it() -> None:
    job = enqueue(tasks.add, 1)
    Job.objects.filter(pk=job.pk).update(args=[1, 2, 3], max_attempts=1)
    run_due()
    assert fresh(job).status == "failed"
    assert "positional argument" in fresh(job).errors[0]["message"]


def test_failures_do_not_cost_the_neighbours() -> None:
    ids = enqueue_many(
        (tasks.raise_odd.bind("nul") if number % 3 else tasks.add.bind(number)) for number in range(300)
    ).ids
    run_due()
    states = dict(Job.objects.filter(pk__in=ids).values_list("pk", "status"))
    assert [states[pk] for pk in ids] == ["failed" if n % 3 else "done" for n in range(300)]


def test_the_error_of_a_job_is_json_that_anybody_can_read() -> None:
    job = enqueue(tasks.fail)
    run_due()
    (error, *_) = fresh(job).errors
    assert json.loads(json.dumps(error)) == error
    assert datetime.fromisoformat(error["started_at"]).astimezone(UTC) <= timezone.now()
