"""The statements of a worker: an answer is taken in while the server works on the next exchange, and is never
lost. Few are prepared, and those that are no longer valid cost no job.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from django_pgqueue import cancel, enqueue, enqueue_many
from django_pgqueue.jobs.finish import Outcome
from django_pgqueue.models import Job
from django_pgqueue.postgres.session import Session, connect
from django_pgqueue.worker import sessions
from django_pgqueue.worker.executor import outcomes
from django_pgqueue.worker.producer import (
    connection as producer_connection,
    producer as producer_module,
    reporter,
)
from django_pgqueue.worker.producer.producer import Producer
from tests.app import worker_tasks as tasks
from tests.support.jobs import sql, value
from tests.support.sessions import Connect, Connection
from tests.support.workers import backend_of, fresh, make_producer, over, run_due, until, working

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
    # However fast the jobs run, more are claimed while the answer before is kept.
    monkeypatch.setattr(Producer, "_room", lambda self, now: 0 if self.lifetime.stopping else 40)
    return counts


@pytest.fixture
def producer(overlapped: list[int]) -> Iterator[Producer]:
    producer = make_producer(burst=True)
    yield producer
    producer._waker.close()


def ends() -> Counter[Any]:
    return Counter(Job.objects.values_list("status", "attempts"))


def test_a_drain_of_short_jobs_overlaps(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[bool] = []
    goes_on = Producer._goes_on_at_once

    def look(producer: Producer, now: float) -> bool:
        kept.append(goes_on(producer, now))
        return kept[-1]

    monkeypatch.setattr(Producer, "_goes_on_at_once", look)
    # On a busy machine, few jobs have ended by the time of an answer.
    monkeypatch.setattr(producer_module, "LARGE", 1)
    monkeypatch.setattr(Producer, "_enough", lambda self: 1)
    drains = 0
    while not any(kept) and drains < 100:
        drains += 1
        enqueue_many(tasks.noop.bind() for _ in range(1_000))
        run_due()
    assert any(kept)
    assert ends() == {("done", 1): drains * 1_000}


def test_all_jobs_run_once_whatever_their_outcome_and_policy(
    producer: Producer, overlapped: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server refuses one of the outcomes."""
    succeeded = outcomes.Outcomes.succeeded

    def unstorable(self: Any, running: Any, value: Any) -> Outcome:
        outcome = succeeded(self, running, value)
        return outcome._replace(result='"\\u0000"') if outcome.id == bad else outcome

    monkeypatch.setattr(outcomes.Outcomes, "succeeded", unstorable)
    sql("SELECT pgqueue_enqueue('tests.app.worker_tasks.noop') FROM generate_series(1, 100)")
    calls = [tasks.noop.bind(), tasks.fail.bind(), tasks.anote.bind("x")]
    bad = enqueue_many(calls[number % 3] for number in range(240)).ids[120]
    producer.run()
    ended = Job.objects.exclude(pk=bad).values_list("task_path", "status", "attempts", "on_lost")
    assert Counter(ended) == {
        ("tests.app.worker_tasks.noop", "done", 1, "rerun"): 179,
        ("tests.app.worker_tasks.fail", "failed", 3, "rerun"): 80,
        ("tests.app.worker_tasks.anote", "done", 1, "rerun"): 80,
    }
    assert (fresh(bad).status, fresh(bad).attempts) == ("failed", 1)
    assert overlapped[:5] == [40] * 5


@pytest.mark.parametrize(("happens", "expected"), [
    # Race: the new session gives back all jobs that the worker does not hold.
    (lambda producer: producer._connection.live.close(), {("done", 1)}),
    (lambda producer: producer.stop(0.0), {("done", 1), ("pending", 0)}),  # the first claim is not kept
], ids=["a lost connection does not lose it", "an end without a grace period requeues its jobs"])  # fmt: skip
def test_something_happens_when_the_first_answer_is_kept(
    monkeypatch: pytest.MonkeyPatch, producer: Producer, happens: Any, expected: set[Any]
) -> None:
    did: list[object] = []

    def goes_on(producer: Producer, now: float) -> bool:
        if not did:
            did.append(happens(producer))
        return True

    monkeypatch.setattr(Producer, "_goes_on_at_once", goes_on)
    enqueue_many(tasks.see.bind(number) for number in range(100))
    producer.run()
    assert ends().keys() == expected
    assert sorted(tasks.SEEN) == list(range(len(tasks.SEEN)))
    assert len(tasks.SEEN) == ends()["done", 1]


def test_behind_a_pooler_nothing_overlaps(
    monkeypatch: pytest.MonkeyPatch, producer: Producer, overlapped: list[int]
) -> None:
    def connect_pooled(alias: str) -> Session:
        session = connect(alias)
        session.pooled = True
        return session

    monkeypatch.setattr(producer_connection, "connect", connect_pooled)
    enqueue_many(tasks.noop.bind() for _ in range(100))
    producer.run()
    assert ends() == {("done", 1): 100}
    assert overlapped == []


# -- prepared statements

LOST = "the connection is lost: a prepared statement cannot be used anymore: "


@pytest.fixture
def owner(connect: Connect) -> Connection:
    return connect(autocommit=True)


@pytest.mark.usefixtures("undeclared")
def test_a_worker_has_few_prepared_statements_whatever_it_has_done(
    owner: Connection, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    """Also when ids need more bytes."""
    settings.PGQUEUE = {"POLL_INTERVAL": 0.05}
    monkeypatch.setattr(sessions, "REGISTER_EVERY", 0.05)
    monkeypatch.setattr(reporter, "FLUSH_EVERY", 0.05)
    statements: list[tuple[str, int, int]] = []
    close = Session.close

    def look(self: Session) -> None:
        query = "SELECT statement, generic_plans, custom_plans FROM pg_prepared_statements"
        statements.extend(self.connection.execute(query).fetchall())
        close(self)

    monkeypatch.setattr(Session, "close", look)
    calls = [
        tasks.add.bind(1, 2), tasks.fail_once.bind(), tasks.fail.bind(), tasks.cancel_itself.bind(),
        tasks.raise_odd.bind("nul"), tasks.noop.bind(),
    ]  # fmt: skip
    with working(threads=3):
        for first_id in (1, 32_760, 2**31 - 100, 2**40):
            value(owner, "SELECT setval('pgqueue_job_id_seq', %s)", first_id)
            for count in (1, 5):
                ids = enqueue_many(calls * count).ids
                ids.append(value(owner, "SELECT pgqueue_enqueue('tests.app.worker_tasks.noop')"))
                over(*ids)
            later = enqueue(tasks.snooze, 60)
            until(lambda later=later: fresh(later).started_at is not None)  # type: ignore[misc]
            with tasks.held(f"job {first_id}", task=tasks.stoppable) as asked:
                cancel(asked)
                over(asked)
    texts = Counter(text for text, _, _ in statements)
    for part in (
        "WITH picked", "_pgqueue_finish", "first_due", "fill_policy", "INTO pgqueue_worker", "_pgqueue_stat",
    ):  # fmt: skip
        assert [count for text, count in texts.items() if part in text] == [1], part
    assert max(texts.values()) == 1
    assert len(texts) <= 15
    assert [text for text, generic, custom in statements if custom or not generic] == []


ANOTHER_TYPE = """
    ALTER FUNCTION _pgqueue_finish RENAME TO pgqueue_finish_v0;
    CREATE FUNCTION _pgqueue_finish(
        bigint[], bigint[], text[], jsonb[], jsonb[], text[], double precision[], double precision[],
        double precision[], text[], integer, jsonb[], OUT accepted numeric[], OUT cancelled bigint[]
    ) LANGUAGE sql AS 'SELECT * FROM pgqueue_finish_v0($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)'
"""
AS_BEFORE = """
    DROP FUNCTION _pgqueue_finish;
    ALTER FUNCTION pgqueue_finish_v0 RENAME TO _pgqueue_finish
"""
COLUMN = "ALTER TABLE pgqueue_job ALTER COLUMN {} TYPE {}"


@pytest.mark.parametrize(("change", "back", "reconnects"), [
    (COLUMN.format("task_path", "text"), COLUMN.format("task_path", "varchar(255)"), True),
    (COLUMN.format("waiting_reason", "text"), COLUMN.format("waiting_reason", "varchar(500)"), False),
    (ANOTHER_TYPE, AS_BEFORE, True),
], ids=["of claims", "of the history only", "of reports"])  # fmt: skip
def test_the_type_of_an_answer_changes_under_a_running_worker(
    owner: Connection, caplog: pytest.LogCaptureFixture, change: str, back: str, reconnects: bool
) -> None:
    """A report must not look like one that the server refuses, because then the job would fail."""
    caplog.set_level(logging.INFO)
    try:
        with working() as worker:
            for _ in range(4):
                over(enqueue(tasks.add, 1), enqueue(tasks.fail_once))
            with tasks.held("held") as held:
                backend = backend_of(worker.producer)
                owner.execute(change)
            jobs = [enqueue(tasks.add, 1), enqueue(tasks.fail_once), held]
            over(*jobs)
            assert (backend_of(worker.producer) != backend) == reconnects
    finally:
        owner.execute(back)
    assert [(fresh(job).status, fresh(job).attempts) for job in jobs] == [("done", n) for n in (1, 2, 1)]
    assert any(message.startswith(LOST) for message in caplog.messages) is reconnects
    raised = {record.name for record in caplog.records if record.exc_info}
    assert raised == {"django_pgqueue.job"}, "fail_once"
