"""The memory of a worker: it holds few of the large jobs, and all of them run."""

from __future__ import annotations

import pytest

from django_pgqueue import enqueue_many
from django_pgqueue.jobs.claim import Claimed
from django_pgqueue.models import Job
from django_pgqueue.worker.producer import demand
from tests.app import worker_tasks as tasks
from tests.support.workers import make_producer

pytestmark = pytest.mark.django_db(transaction=True)


def test_few_large_jobs_are_held_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demand, "HELD_CHARACTERS", 110_000)
    enqueue_many(tasks.see.bind("x" * 10_000) for _ in range(150))
    producer = make_producer(burst=True, threads=2)
    held: list[int] = []
    submit = producer._executor.submit

    def count(rows: list[Claimed], job_seconds: float) -> None:
        held.append(len(producer.jobs) - len(producer._reporter))
        submit(rows, job_seconds)

    monkeypatch.setattr(producer._executor, "submit", count)
    producer.run()
    producer._waker.close()
    assert Job.objects.filter(status="done").count() == 150
    assert max(held) <= 10, held
