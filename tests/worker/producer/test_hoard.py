"""One slow job never holds up other jobs, in this worker or in the queue."""

from __future__ import annotations

import pytest

from django_pgqueue import enqueue, enqueue_many
from django_pgqueue.models import Job
from tests.app import worker_tasks as tasks
from tests.support.workers import fresh, run_due, until, working

pytestmark = pytest.mark.django_db(transaction=True)


def warm(worker: object) -> None:
    """Let a worker assume that jobs are fast."""
    ids = enqueue_many(tasks.noop.bind() for _ in range(200)).ids
    until(lambda: Job.objects.filter(pk__in=ids, status="done").count() == 200)


def test_a_slow_job_among_quick_ones_holds_none_of_them() -> None:
    with working(threads=2) as worker:
        warm(worker)
        slow = tasks.hold.bind("slow")
        ids = enqueue_many(
            [*[tasks.noop.bind() for _ in range(50)], slow, *[tasks.noop.bind() for _ in range(50)]]
        ).ids
        assert tasks.gate("slow runs").wait(tasks.DEADLINE)
        until(lambda: Job.objects.filter(pk__in=ids, status="done").count() == 100)
        assert fresh(ids[50]).status == "running"
        tasks.gate("slow").set()


def test_a_worker_that_knows_nothing_takes_no_more_than_it_has_slots_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ids = enqueue_many(tasks.hold.bind("slow") for _ in range(10)).ids
    with working(threads=3) as worker:
        producer, turns = worker.producer, 0
        room = producer._room

        def count(now: float) -> int:
            nonlocal turns
            turns += 1
            return room(now)

        def has_turned() -> bool:
            producer._waker.interrupt()
            return turns > 5

        assert tasks.gate("slow runs").wait(tasks.DEADLINE)
        until(lambda: Job.objects.filter(pk__in=ids, status="running").count() == 3)
        # It is woken for some more rounds, each of which could claim too many jobs.
        monkeypatch.setattr(producer, "_room", count)
        until(has_turned)
        assert Job.objects.filter(pk__in=ids, status="running").count() == 3
        tasks.gate("slow").set()
        until(lambda: Job.objects.filter(pk__in=ids, status="done").count() == 10)


@pytest.mark.parametrize("task", [tasks.hold, tasks.ahold], ids=["sync", "async"])
def test_jobs_claimed_ahead_of_slow_ones_go_back_for_others(task: object) -> None:
    with working(threads=2) as worker:
        warm(worker)
        names = [task.bind("slow"), task.bind("slow")]  # type: ignore[attr-defined]
        slow = enqueue_many([*names, *[tasks.noop.bind() for _ in range(300)]]).ids
        quick = slow[2:]
        slow = slow[:2]
        assert tasks.gate("slow runs").wait(tasks.DEADLINE)
        # Both slots are in use. Another worker gets all other jobs, and this worker holds none of them.
        run_until_done(quick)
        assert {fresh(pk).status for pk in slow} == {"running"}
        tasks.gate("slow").set()
        until(lambda: {fresh(pk).status for pk in slow} == {"done"})
    assert set(Job.objects.filter(pk__in=quick).values_list("attempts", flat=True)) == {1}


def run_until_done(ids: list[int]) -> None:
    def done() -> bool:
        run_due()
        return Job.objects.filter(pk__in=ids, status="done").count() == len(ids)

    until(done)


def test_jobs_that_go_back_do_not_count_for_max_jobs() -> None:
    enqueue(tasks.noop)
    producer = run_due(max_jobs=5)
    assert (producer.lifetime.executed, producer.lifetime.replaced) == (1, False)
