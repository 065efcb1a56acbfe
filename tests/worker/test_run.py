"""A job from enqueue to its end in one worker, never run twice, and what ``django.tasks`` sees of it."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import override_settings
from django.utils import timezone

from django_pgqueue import current_job, enqueue, enqueue_many, retry
from django_pgqueue.compat import TaskResultStatus, task_backends
from django_pgqueue.models import Job, JobStat, Worker
from tests.app import worker_tasks as tasks
from tests.support.databases import alias, in_schema, migrate
from tests.support.jobs import fetch, sql
from tests.support.waiting import run
from tests.support.workers import fresh, run_due, until, working

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_job_runs_and_is_done_with_its_result() -> None:
    before = timezone.now()
    job, without = enqueue(tasks.add, 2, b=3), enqueue(tasks.noop)
    producer = run_due()
    done: Any = fresh(job)
    assert (done.status, done.result, done.attempts, done.errors) == ("done", 5, 1, [])
    assert before < done.enqueued_at <= done.started_at <= done.last_attempted_at <= done.finished_at
    assert done.worker_ids == [str(done.worker)]
    assert (fresh(without).status, fresh(without).result) == ("done", None)
    assert producer.lifetime.executed == 2


def test_jobs_that_are_over_know_how_long_they_ran() -> None:
    done = [tasks.noop.bind(), tasks.anote.bind("a"), tasks.effect.bind("a")]
    ids = enqueue_many([*done, tasks.raise_base.bind("SystemExit"), tasks.cancel_itself.bind()]).ids
    run_due()
    jobs: list[Any] = [fresh(pk) for pk in ids]
    assert [job.status for job in jobs] == ["done", "done", "done", "failed", "cancelled"]
    for job in jobs:
        passed = (job.finished_at - job.last_attempted_at).total_seconds()
        assert 0 <= job.duration <= passed + 1e-5


def test_many_jobs_each_run_once_and_are_counted() -> None:
    ids = enqueue_many(tasks.see.bind(number) for number in range(2000)).ids
    enqueue(tasks.raise_odd, "nul")
    producer = run_due(threads=4)
    assert sorted(tasks.SEEN) == list(range(2000))
    assert producer.lifetime.executed == 2001
    assert Job.objects.filter(pk__in=ids, status="done", attempts=1).count() == 2000
    stats = {stat.task_path.rpartition(".")[2]: stat for stat in JobStat.objects.all()}
    assert (stats["see"].done, stats["raise_odd"].failed) == (2000, 1)
    assert sum(stats["see"].wait_histogram) == sum(stats["see"].run_histogram) == 2000


@pytest.mark.promise("priority")
def test_higher_priority_runs_first_then_the_older() -> None:
    for priority, name in [(0, "c"), (5, "a"), (-5, "e"), (0, "d"), (5, "b")]:
        enqueue(tasks.see.using(priority=priority), name)
    run_due(threads=1)
    assert tasks.SEEN == ["a", "b", "c", "d", "e"]


def test_a_worker_keeps_to_its_queues() -> None:
    for name in "abcd":
        enqueue(tasks.see.using(queue_name=name), name)
    ways: list[tuple[dict[str, Any], str]] = [
        ({"queues": ("a",)}, "a"), ({"exclude_queues": ("a", "c", "d")}, "b"), ({}, "cd")
    ]  # fmt: skip
    for options, seen in ways:
        tasks.SEEN.clear()
        run_due(**options)
        assert "".join(sorted(tasks.SEEN)) == seen


def test_what_a_task_enqueues_runs_in_the_same_burst() -> None:
    enqueue(tasks.enqueue_chain, 5)
    run_due()
    assert tasks.SEEN == [5, 4, 3, 2, 1, 0]


def test_a_worker_is_on_the_list_while_it_lives() -> None:
    with working(threads=2, queues=("a", "b")):
        worker = until(Worker.objects.first)
        shown = worker.slots, worker.queues, worker.state, worker.holds_lock
        assert shown == (2, ["a", "b"], "running", True)
    assert not Worker.objects.exists()


@pytest.mark.usefixtures("undeclared")
def test_a_job_enqueued_in_plain_sql_gets_the_policy_of_its_task() -> None:
    pk = sql("SELECT pgqueue_enqueue('tests.app.worker_tasks.fail', '[\"x\"]'::jsonb)")
    assert (fresh(pk).max_attempts, fresh(pk).on_lost) == (None, None)
    run_due()
    failed = fresh(pk)
    assert (failed.status, failed.attempts, failed.max_attempts, failed.on_lost) == ("failed", 3, 3, "rerun")


def test_a_worker_works_in_the_schema_that_only_options_name() -> None:
    with alias("schema", OPTIONS=in_schema("queue_only")) as name:
        sql("DROP SCHEMA IF EXISTS queue_only CASCADE; CREATE SCHEMA queue_only", using=name)
        try:
            migrate(name)
            sql("SELECT pgqueue_enqueue('tests.app.worker_tasks.noop')", using=name)
            run_due(alias=name)
            assert fetch("SELECT status FROM pgqueue_job", using=name) == [("done",)]
        finally:
            sql("DROP SCHEMA queue_only CASCADE", using=name)
    assert not Job.objects.exists()


# -- results of django.tasks

OURS = {"BACKEND": "django_pgqueue.backend.PgQueueBackend"}


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


def test_the_current_job_and_the_context_are_of_the_job_and_there_is_none_outside() -> None:
    results: list[Any] = [
        tasks.inside.enqueue(),
        tasks.sees_context.enqueue(2),
        tasks.asees_context.enqueue(2),
    ]
    run_due()
    for result in results:
        result.refresh()
    inside, *seen = results
    assert inside.return_value == {"id": int(inside.id), "attempts": 1, "status": "running", "lease": True}
    for result in seen:
        assert result.return_value == {
            "is current": True, "is Django's": True, "job": [int(result.id), "running", 2],
            "result": [result.id, "RUNNING", 2, ["builtins.ValueError"]],
        }  # fmt: skip
    with pytest.raises(LookupError, match=r"No job is running here"):
        current_job()
