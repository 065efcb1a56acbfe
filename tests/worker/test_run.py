"""A job from enqueue to its end in one worker, never run twice, and what a worker leaves behind."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.utils import timezone

from django_pgqueue import cancel, current_job, enqueue, enqueue_many
from django_pgqueue.models import Job, JobStat, Queue, Worker
from tests.app import worker_tasks as tasks
from tests.app.models import Entry
from tests.support.workers import fresh, run_due, until, working

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_job_runs_and_is_done_with_its_result() -> None:
    before = timezone.now()
    job = enqueue(tasks.add, 2, b=3)
    producer = run_due()
    done = fresh(job)
    assert (done.status, done.result, done.attempts, done.errors) == ("done", 5, 1, [])
    assert done.started_at is not None
    assert done.last_attempted_at is not None
    assert done.finished_at is not None
    assert before < done.enqueued_at <= done.started_at <= done.last_attempted_at <= done.finished_at
    assert done.worker_ids == [str(done.worker)]
    assert producer.lifetime.executed == 1


def test_a_job_without_a_result_has_none() -> None:
    job = enqueue(tasks.noop)
    run_due()
    assert (fresh(job).status, fresh(job).result) == ("done", None)


@pytest.mark.parametrize(
    ("task", "status"),
    [
        (tasks.noop.bind(), "done"),
        (tasks.anote.bind("a"), "done"),
        (tasks.effect.bind("a"), "done"),
        (tasks.raise_base.bind("SystemExit"), "failed"),
        (tasks.cancel_itself.bind(), "cancelled"),
    ],
    ids=["sync", "async", "atomic", "failed", "cancelled"],
)
def test_a_job_that_is_over_knows_how_long_it_ran(task: Any, status: str) -> None:
    (pk,) = enqueue_many([task]).ids
    run_due()
    over = fresh(pk)
    assert over.status == status
    assert over.duration is not None
    assert over.last_attempted_at is not None
    assert over.finished_at is not None
    passed = (over.finished_at - over.last_attempted_at).total_seconds()
    assert 0 <= over.duration <= passed + 1e-5


def test_many_jobs_each_run_once() -> None:
    ids = enqueue_many(tasks.see.bind(number) for number in range(3000)).ids
    producer = run_due(threads=4)
    assert sorted(tasks.SEEN) == list(range(3000))
    assert producer.lifetime.executed == 3000
    assert Job.objects.filter(pk__in=ids, status="done", attempts=1).count() == 3000


@pytest.mark.promise("priority")
def test_higher_priority_runs_first_then_the_older() -> None:
    for priority, name in [(0, "c"), (5, "a"), (-5, "e"), (0, "d"), (5, "b")]:
        enqueue(tasks.see.using(priority=priority), name)
    run_due(threads=1)
    assert tasks.SEEN == ["a", "b", "c", "d", "e"]


def test_only_what_is_due_runs() -> None:
    later = enqueue(tasks.noop.using(run_after=timedelta(hours=1)))
    now = enqueue(tasks.noop)
    run_due()
    assert (fresh(later).status, fresh(now).status) == ("pending", "done")


def test_a_worker_keeps_to_its_queues() -> None:
    jobs = {name: enqueue(tasks.noop.using(queue_name=name)) for name in ("a", "b", "c")}

    def states() -> dict[str, str]:
        return {name: fresh(job).status for name, job in jobs.items()}

    run_due(queues=("a",))
    assert states() == {"a": "done", "b": "pending", "c": "pending"}
    run_due(exclude_queues=("a", "c"))
    assert states() == {"a": "done", "b": "done", "c": "pending"}
    run_due()
    assert states() == {"a": "done", "b": "done", "c": "done"}


def test_a_cancelled_job_does_not_run() -> None:
    job = enqueue(tasks.see, 1)
    assert cancel(job) == 1
    run_due()
    assert (fresh(job).status, tasks.SEEN) == ("cancelled", [])


def test_what_a_task_enqueues_runs_in_the_same_burst() -> None:
    enqueue(tasks.enqueue_chain, 5)
    run_due()
    assert tasks.SEEN == [5, 4, 3, 2, 1, 0]


@pytest.mark.promise("exists-if-committed")
def test_an_enqueue_that_rolls_back_leaves_nothing() -> None:
    with transaction.atomic():
        enqueue(tasks.see, 1)
        transaction.set_rollback(True)
    run_due()
    assert tasks.SEEN == []
    assert not Job.objects.exists()


def test_current_job_is_the_job_inside_and_a_lookup_error_outside() -> None:
    job = enqueue(tasks.inside)
    run_due()
    assert fresh(job).result == {"id": job.pk, "attempts": 1, "status": "running", "lease": True}
    with pytest.raises(LookupError, match=r"No job is running here"):
        current_job()


def test_a_task_that_takes_the_context() -> None:
    job = enqueue(tasks.contextual, 7)
    run_due()
    assert fresh(job).result == [1, str(job.pk), 7]


def test_jobs_run_at_once_in_as_many_threads_as_told() -> None:
    enqueue_many(tasks.meet.bind("three", 3) for _ in range(3))
    run_due(threads=3)
    assert set(Job.objects.values_list("status", flat=True)) == {"done"}


@pytest.mark.promise("no-history")
def test_a_queue_that_keeps_nothing_forgets_its_jobs() -> None:
    Queue.objects.create(name="brief", retention=timedelta(0), failed_retention=timedelta(0))
    enqueue(tasks.see.using(queue_name="brief"), 1)
    run_due()
    assert tasks.SEEN == [1]
    assert not Job.objects.exists()


def test_a_worker_counts_what_it_ran() -> None:
    enqueue_many(tasks.noop.bind() for _ in range(3))
    enqueue(tasks.raise_odd, "nul")
    run_due()
    stats = {stat.task_path.rpartition(".")[2]: stat for stat in JobStat.objects.all()}
    assert (stats["noop"].done, stats["raise_odd"].failed) == (3, 1)
    assert sum(stats["noop"].wait_histogram) == sum(stats["noop"].run_histogram) == 3


def test_a_worker_is_on_the_list_while_it_lives() -> None:
    with working(threads=2, queues=("a", "b")):
        worker = until(Worker.objects.first)
        assert (worker.slots, worker.queues, worker.state, worker.holds_lock) == (
            2,
            ["a", "b"],
            "running",
            True,
        )
    assert not Worker.objects.exists()


@pytest.mark.usefixtures("undeclared")
def test_a_job_enqueued_in_plain_sql_gets_the_policy_of_its_task() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pgqueue_enqueue('tests.app.worker_tasks.fail', '[\"x\"]'::jsonb)")
        (pk,) = cursor.fetchone()
    assert (fresh(pk).max_attempts, fresh(pk).on_lost) == (None, None)
    run_due()
    failed = fresh(pk)
    assert (failed.status, failed.attempts, failed.max_attempts, failed.on_lost) == ("failed", 3, 3, "rerun")


def test_an_idle_worker_starts_a_job_by_notification() -> None:
    with working():
        for number in range(5):
            tasks.gate("done").clear()
            job = enqueue(tasks.note, str(number))
            until(lambda job=job: fresh(job).status == "done")  # type: ignore[misc]
    assert Entry.objects.count() == 5
