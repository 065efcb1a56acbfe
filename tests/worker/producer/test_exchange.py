"""The answer of one exchange is taken in while the server works on the next one, and is never lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import connection

from django_pgqueue import enqueue_many
from django_pgqueue.jobs.finish import Outcome
from django_pgqueue.models import Job
from django_pgqueue.postgres.session import Session, connect
from django_pgqueue.worker.executor import outcomes
from django_pgqueue.worker.producer import connection as producer_connection
from django_pgqueue.worker.producer.producer import Producer
from tests.app import worker_tasks as tasks
from tests.support.workers import make_producer

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def overlapped(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Keep each answer until the next exchange, and note how many jobs were in the answers."""
    counts: list[int] = []
    run_beside = Session.run_beside

    def count(session: Session, work: Callable[[], None], *statements: Any, **options: Any) -> Any:
        cursors = run_beside(session, work, *statements, **options)
        counts.append(cursors[-1].rowcount)
        return cursors

    monkeypatch.setattr(Session, "run_beside", count)
    monkeypatch.setattr(Producer, "_goes_on_at_once", lambda self, now: True)
    return counts


@pytest.fixture
def producer(overlapped: list[int]) -> Iterator[Producer]:
    producer = make_producer(burst=True)
    yield producer
    producer._waker.close()


def when_first_kept(monkeypatch: pytest.MonkeyPatch, do: Callable[[], object]) -> None:
    """Do something at the moment when the first answer has been kept."""
    did: list[object] = []

    def goes_on(producer: Producer, now: float) -> bool:
        if not did:
            did.append(do())
        return True

    monkeypatch.setattr(Producer, "_goes_on_at_once", goes_on)


def test_a_drain_of_short_jobs_overlaps(monkeypatch: pytest.MonkeyPatch, overlapped: list[int]) -> None:
    monkeypatch.undo()
    kept: list[bool] = []
    goes_on = Producer._goes_on_at_once

    def look(producer: Producer, now: float) -> bool:
        kept.append(goes_on(producer, now))
        return kept[-1]

    monkeypatch.setattr(Producer, "_goes_on_at_once", look)
    drains = 0
    # On a busy machine, a drain may leave its worker so little of the processor that it never gets ahead.
    while not any(kept) and drains < 30:
        drains += 1
        enqueue_many(tasks.noop.bind() for _ in range(10_000))
        producer = make_producer(burst=True)
        producer.run()
        producer._waker.close()
    assert Job.objects.filter(status="done").count() == drains * 10_000
    assert any(kept)


def test_all_jobs_run_once_whatever_their_outcome_and_policy(
    producer: Producer, overlapped: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    # However fast the jobs run, more are claimed while the answer before is kept.
    monkeypatch.setattr(Producer, "_room", lambda self, now: 0 if self.lifetime.stopping else 40)
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pgqueue_enqueue(%s) FROM generate_series(1, 100)", ["tests.app.worker_tasks.noop"]
        )
    calls = [tasks.noop.bind(), tasks.fail.bind(), tasks.anote.bind("x")]
    enqueue_many(calls[number % 3] for number in range(300))
    producer.run()
    ended = Job.objects.values_list("task_path", "status", "attempts", "on_lost")
    assert Counter(ended) == {
        ("tests.app.worker_tasks.noop", "done", 1, "rerun"): 200,
        ("tests.app.worker_tasks.fail", "failed", 3, "rerun"): 100,
        ("tests.app.worker_tasks.anote", "done", 1, "rerun"): 100,
    }
    assert overlapped[:5] == [40] * 5


def test_a_lost_connection_does_not_lose_the_kept_answer(
    monkeypatch: pytest.MonkeyPatch, producer: Producer
) -> None:
    """Race: the new session gives back all jobs that the worker does not hold."""

    when_first_kept(monkeypatch, lambda: producer._connection.live.close())
    enqueue_many(tasks.see.bind(number) for number in range(100))
    producer.run()
    assert Counter(Job.objects.values_list("status", "attempts")) == {("done", 1): 100}
    assert sorted(tasks.SEEN) == list(range(100))


def test_an_end_without_a_grace_period_requeues_the_jobs_in_the_kept_answer(
    monkeypatch: pytest.MonkeyPatch, producer: Producer
) -> None:
    when_first_kept(monkeypatch, lambda: producer.stop(0.0))
    enqueue_many(tasks.noop.bind() for _ in range(100))
    producer.run()
    ended = Counter(Job.objects.values_list("status", "attempts"))
    assert ended.keys() == {("done", 1), ("pending", 0)}  # the first claim is not kept


def test_a_refused_outcome_fails_its_job_only_and_the_kept_answer_is_taken_in(
    producer: Producer, overlapped: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    succeeded = outcomes.Outcomes.succeeded

    def unstorable(self: Any, running: Any, value: Any) -> Outcome:
        outcome = succeeded(self, running, value)
        return outcome._replace(result='"\\u0000"') if outcome.id == bad else outcome

    monkeypatch.setattr(outcomes.Outcomes, "succeeded", unstorable)
    ids = enqueue_many(tasks.noop.bind() for _ in range(1_200)).ids
    bad = ids[600]
    producer.run()
    assert Counter(Job.objects.values_list("status", "attempts")) == {("done", 1): 1_199, ("failed", 1): 1}
    assert Job.objects.get(status="failed").pk == bad


def test_behind_a_pooler_nothing_overlaps(
    monkeypatch: pytest.MonkeyPatch, producer: Producer, overlapped: list[int]
) -> None:
    def connect_pooled(alias: str) -> Session:
        return Session(connect(alias).connection, pooled=True, commit="on", role="")

    monkeypatch.setattr(producer_connection, "connect", connect_pooled)
    enqueue_many(tasks.noop.bind() for _ in range(100))
    producer.run()
    assert Job.objects.filter(status="done").count() == 100
    assert overlapped == []
