"""A worker and limits: what runs at once, in which order, and when a change takes effect."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from django_pgqueue import RateLimit, enqueue, enqueue_many, set_limit
from django_pgqueue.models import Job, Limit
from django_pgqueue.tasks.task import Task
from tests.app import limit_tasks as limited
from tests.app import worker_tasks as tasks
from tests.support.workers import fresh, run_due, until, working

pytestmark = pytest.mark.django_db(transaction=True)


def test_jobs_of_a_key_run_one_after_the_other_in_order() -> None:
    tasks.reset()
    enqueue_many(limited.ship.bind(1, f"{number}") for number in range(50))
    for number in range(50, 60):
        enqueue(limited.ship, 1, f"{number}")
    run_due(threads=4)
    assert [str(number) for number in range(60)] == tasks.SEEN
    assert not Job.objects.exclude(status="done").exists()


def test_the_limits_that_the_code_declares_are_written_by_a_worker() -> None:
    with working(threads=3):
        jobs = [enqueue(limited.two, f"hold {number}") for number in range(3)]
        for number in range(2):
            assert tasks.gate(f"hold {number} runs").wait(tasks.DEADLINE)
        until(lambda: fresh(jobs[2]).status == "blocked")
        two = Limit.objects.get(name="tests.app.limit_tasks.two")
        assert (two.concurrency, two.declared_concurrency, two.is_overridden) == (2, 2, False)
        set_limit(task=limited.two, concurrency=3)
        assert tasks.gate("hold 2 runs").wait(tasks.DEADLINE)
        for number in range(3):
            tasks.gate(f"hold {number}").set()
        until(lambda: all(fresh(job).is_finished for job in jobs))


def test_the_limits_of_a_module_are_written_as_soon_as_a_job_has_imported_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def imported() -> list[Task[..., Any]]:
        return [limited.two] if tasks.gate("hold 0 runs").is_set() else []

    monkeypatch.setattr("django_pgqueue.maintenance.limits.declared_tasks", imported)
    with working(threads=3):
        first = enqueue(limited.two, "hold 0")
        assert tasks.gate("hold 0 runs").wait(tasks.DEADLINE)
        second = enqueue(limited.two, "hold 1")
        assert tasks.gate("hold 1 runs").wait(2.0)  # not only when the worker registers again
        for number in range(2):
            tasks.gate(f"hold {number}").set()
        until(lambda: fresh(first).is_finished and fresh(second).is_finished)


def test_a_worker_that_sleeps_starts_what_another_session_releases() -> None:
    with working(threads=2):
        first, second = enqueue(limited.ship, 1, "hold a"), enqueue(limited.ship, 1, "b")
        assert tasks.gate("hold a runs").wait(tasks.DEADLINE)
        until(lambda: fresh(second).status == "blocked")
        tasks.gate("hold a").set()
        until(lambda: fresh(first).is_finished and fresh(second).is_finished)


@pytest.mark.promise("limit-change")
def test_the_limit_of_a_queue_holds_and_changes_while_it_works() -> None:
    set_limit(queue="default", concurrency=2)
    with working(threads=6):
        jobs = [enqueue(tasks.hold, f"q{number}") for number in range(5)]
        for number in range(2):
            assert tasks.gate(f"q{number} runs").wait(tasks.DEADLINE)
        assert Job.objects.filter(status="running").count() == 2
        set_limit(queue="default", concurrency=3)
        assert tasks.gate("q2 runs").wait(tasks.DEADLINE)
        assert Job.objects.filter(status="running").count() == 3
        tasks.gate("q0").set()
        assert tasks.gate("q3 runs").wait(tasks.DEADLINE)
        for number in range(5):
            tasks.gate(f"q{number}").set()
        until(lambda: all(fresh(job).is_finished for job in jobs))


@pytest.mark.promise("limit-cancel-old")
def test_a_job_that_another_one_replaces_is_asked_to_stop() -> None:
    with working(threads=2):
        old = enqueue(limited.build, "a", "hold old")
        assert tasks.gate("hold old runs").wait(tasks.DEADLINE)
        new = enqueue(limited.build, "a", "new")
        until(lambda: fresh(old).cancel_requested)
        tasks.gate("hold old").set()
        until(lambda: fresh(new).is_finished)
        assert fresh(new).status == "done"


def test_a_job_that_finds_no_room_is_skipped(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", "django_pgqueue"), working(threads=2):
        old = enqueue(limited.refresh, "a", "hold it")
        assert tasks.gate("hold it runs").wait(tasks.DEADLINE)
        new = enqueue(limited.refresh, "a", "new")
        until(lambda: fresh(new).is_finished)
        assert fresh(new).status == "cancelled"
        until(lambda: "cancelled 1 job that found no room, as the limit says" in caplog.text)
        tasks.gate("hold it").set()
        until(lambda: fresh(old).is_finished)


@pytest.mark.promise("rate-order")
def test_jobs_start_at_their_rate_and_in_order() -> None:
    tasks.reset()
    with working(threads=4):
        jobs = [enqueue(limited.quick, 7, str(number)) for number in range(10)]
        until(lambda: all(fresh(job).is_finished for job in jobs))
    assert [str(number) for number in range(10)] == tasks.SEEN
    starts = [fresh(job).last_attempted_at for job in jobs]
    assert None not in starts
    assert max(starts) - min(starts) >= timedelta(seconds=0.4)  # type: ignore[operator, type-var]


@pytest.mark.promise("rate-change")
def test_a_rate_that_is_raised_wakes_a_worker_that_sleeps() -> None:
    with working(threads=3):
        jobs = [enqueue(limited.hourly, f"h{number}") for number in range(4)]
        until(lambda: sum(fresh(job).is_finished for job in jobs) == 2)
        until(lambda: fresh(jobs[3]).status == "blocked")
        set_limit(task=limited.hourly, rate_limit=RateLimit(1000, per=timedelta(seconds=1), burst=10))
        until(lambda: all(fresh(job).is_finished for job in jobs))


def test_the_rate_of_a_queue_holds_and_changes_while_it_works() -> None:
    set_limit(queue="default", rate_limit=RateLimit(1, per=timedelta(hours=1), burst=2))
    with working(threads=3):
        jobs = [enqueue(tasks.note, f"r{number}") for number in range(4)]
        until(lambda: sum(fresh(job).is_finished for job in jobs) == 2)
        set_limit(queue="default", rate_limit=RateLimit(1000, per=timedelta(seconds=1), burst=10))
        until(lambda: all(fresh(job).is_finished for job in jobs))
