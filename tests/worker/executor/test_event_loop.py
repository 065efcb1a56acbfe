"""Async tasks: many run on one event loop, each with its own context and its own thread for sync work."""

from __future__ import annotations

import pytest

from django_pgqueue import enqueue, enqueue_many
from django_pgqueue.models import Job
from tests.app import worker_tasks as tasks
from tests.app.models import Entry
from tests.support.workers import fresh, run_due, until, working

pytestmark = pytest.mark.django_db(transaction=True)


def test_async_jobs_run_at_once_as_many_as_told() -> None:
    ids = enqueue_many(tasks.ameet.bind("ten", 10) for _ in range(10)).ids
    run_due(threads=10)
    assert Job.objects.filter(pk__in=ids, status="done").count() == 10


def test_many_async_jobs_each_run_once() -> None:
    enqueue_many(tasks.anote.bind(str(number)) for number in range(200))
    run_due(threads=3)
    assert Entry.objects.values("key").distinct().count() == Entry.objects.count() == 200


def test_sync_and_async_jobs_go_on_side_by_side() -> None:
    jobs = [enqueue(tasks.ahold, "a"), enqueue(tasks.hold, "s")]
    with working(threads=2):
        assert tasks.gate("a runs").wait(tasks.DEADLINE)
        assert tasks.gate("s runs").wait(tasks.DEADLINE)
        tasks.gate("a").set()
        until(lambda: fresh(jobs[0]).status == "done")
        tasks.gate("s").set()
        until(lambda: fresh(jobs[1]).status == "done")


def test_an_async_exception_is_the_job_s() -> None:
    job = enqueue(tasks.afail, "oops")
    run_due()
    failed = fresh(job)
    assert (failed.status, failed.errors[0]["message"]) == ("failed", "oops")
    assert "in afail\n" in failed.errors[0]["traceback"]
    assert "django_pgqueue/worker" not in failed.errors[0]["traceback"]


def test_current_job_is_known_in_threads_and_tasks_of_the_job() -> None:
    jobs = [enqueue(tasks.aid_everywhere) for _ in range(8)]
    run_due(threads=8)
    assert [fresh(job).result for job in jobs] == [[job.pk] * 4 for job in jobs]


def test_a_job_that_blocks_its_sync_thread_holds_no_other() -> None:
    blocked = enqueue(tasks.ablock_thread, "b")
    with working(threads=2):
        assert tasks.gate("b runs").wait(tasks.DEADLINE)
        others = enqueue_many(tasks.anote.bind("other") for _ in range(5)).ids
        until(lambda: Job.objects.filter(pk__in=others, status="done").count() == 5)
        assert fresh(blocked).status == "running"
        tasks.gate("b").set()
        until(lambda: fresh(blocked).status == "done")


def test_a_worker_that_stops_cancels_what_the_grace_was_too_short_for() -> None:
    job = enqueue(tasks.asleep, "n")
    with working() as worker:
        assert tasks.gate("n runs").wait(tasks.DEADLINE)
        worker.stop(grace=0)
    until(lambda: "n cancelled" in tasks.SEEN)
    back = fresh(job)
    assert (back.status, back.attempts, back.errors) == ("pending", 0, [])
    assert back.waiting_reason == "its worker was stopped"
