"""A worker and limits: what runs at once, in which order, and when a change takes effect."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from django_pgqueue import RateLimit, enqueue, enqueue_many, set_limit
from django_pgqueue.models import Job, Limit
from django_pgqueue.tasks.task import Task
from tests.app import limit_tasks as limited, worker_tasks as tasks
from tests.support.workers import done, fresh, over, run_due, until, working

pytestmark = pytest.mark.django_db(transaction=True)


def test_jobs_of_a_key_run_one_after_the_other_in_order() -> None:
    enqueue_many(limited.ship.bind(1, f"{number}") for number in range(15))
    for number in range(15, 20):
        enqueue(limited.ship, 1, f"{number}")
    run_due(threads=4)
    assert [str(number) for number in range(20)] == tasks.SEEN
    assert not Job.objects.exclude(status="done").exists()


def test_the_limits_that_the_code_declares_are_written_by_a_worker() -> None:
    with working(threads=3):
        jobs = [enqueue(limited.two, f"hold {number}") for number in range(3)]
        tasks.runs("hold 0", "hold 1")
        until(lambda: fresh(jobs[2]).status == "blocked")
        two = Limit.objects.get(name="tests.app.limit_tasks.two")
        assert (two.concurrency, two.declared_concurrency, two.is_overridden) == (2, 2, False)
        set_limit(task=limited.two, concurrency=3)
        tasks.runs("hold 2")
        tasks.release("hold 0", "hold 1", "hold 2")
        over(*jobs)


def test_the_limits_of_a_module_are_written_as_soon_as_a_job_has_imported_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def imported() -> list[Task[..., Any]]:
        return [limited.two] if tasks.gate("hold 0 runs").is_set() else []

    monkeypatch.setattr("django_pgqueue.maintenance.limits.declared_tasks", imported)
    with working(threads=3) as worker:
        first = enqueue(limited.two, "hold 0")
        tasks.runs("hold 0")
        worker.producer._registration._next = float("inf")  # not only when the worker registers again
        second = enqueue(limited.two, "hold 1")
        tasks.runs("hold 1")
        tasks.release("hold 0", "hold 1")
        over(first, second)


@pytest.mark.promise("limit-change")
def test_the_limit_of_a_queue_holds_and_changes_while_it_works() -> None:
    def running() -> int:
        return Job.objects.filter(status="running").count()

    set_limit(queue="default", concurrency=2)
    with working(threads=6):
        jobs = [enqueue(tasks.hold, f"q{number}") for number in range(5)]
        tasks.runs("q0", "q1")
        assert running() == 2
        set_limit(queue="default", concurrency=3)
        tasks.runs("q2")
        assert running() == 3
        tasks.release("q0")
        tasks.runs("q3")
        tasks.release("q1", "q2", "q3", "q4")
        over(*jobs)


@pytest.mark.promise("limit-cancel-old")
def test_a_job_that_another_one_replaces_is_asked_to_stop() -> None:
    with working(threads=2):
        old = enqueue(limited.build, "a", "hold old")
        tasks.runs("hold old")
        new = enqueue(limited.build, "a", "new")
        until(lambda: fresh(old).cancel_requested)
        tasks.release("hold old")
        done(new)


def test_a_job_that_finds_no_room_is_skipped(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", "django_pgqueue"), working(threads=2):
        old = enqueue(limited.refresh, "a", "hold it")
        tasks.runs("hold it")
        new = enqueue(limited.refresh, "a", "new")
        over(new)
        assert fresh(new).status == "cancelled"
        until(lambda: "cancelled 1 job that found no room, as the limit says" in caplog.text)
        tasks.release("hold it")
        over(old)


@pytest.mark.promise("rate-order")
def test_jobs_start_at_their_rate_and_in_order() -> None:
    with working(threads=4):
        jobs = [enqueue(limited.quick, 7, str(number)) for number in range(10)]
        over(*jobs)
    assert [str(number) for number in range(10)] == tasks.SEEN
    starts = [fresh(job).last_attempted_at for job in jobs]
    assert None not in starts
    assert max(starts) - min(starts) >= timedelta(seconds=0.4)  # type: ignore[operator, type-var]


@pytest.mark.promise("rate-change")
@pytest.mark.parametrize(
    ("target", "task"),
    [({"task": limited.hourly}, limited.hourly), ({"queue": "default"}, tasks.note)],
    ids=["task", "queue"],
)
def test_a_rate_that_is_raised_wakes_a_worker_that_sleeps(target: dict[str, Any], task: Any) -> None:
    if "queue" in target:
        set_limit(**target, rate_limit=RateLimit(1, per=timedelta(hours=1), burst=2))
    with working(threads=3):
        jobs = [enqueue(task, f"h{number}") for number in range(4)]
        until(lambda: sum(fresh(job).is_finished for job in jobs) == 2)
        if "task" in target:
            until(lambda: fresh(jobs[3]).status == "blocked")
        set_limit(**target, rate_limit=RateLimit(1000, per=timedelta(seconds=1), burst=10))
        over(*jobs)
