"""The prepared statements of a worker: how many there are, and what happens when they are no longer valid."""

from __future__ import annotations

import logging
from collections import Counter
from typing import Any

import pytest

from django_pgqueue import cancel, enqueue, enqueue_many
from django_pgqueue.postgres.session import Session
from django_pgqueue.worker import sessions
from django_pgqueue.worker.producer import reporter
from tests.app import worker_tasks as tasks
from tests.support.jobs import value
from tests.support.sessions import Connect, Connection
from tests.support.workers import backend_of, fresh, until, working

pytestmark = pytest.mark.django_db(transaction=True)

LOST = "the connection is lost: a prepared statement cannot be used anymore: "


@pytest.fixture
def owner(connect: Connect) -> Connection:
    return connect(autocommit=True)


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int, int]]:
    """A list that gets the prepared statements of each session when it is closed."""
    found: list[tuple[str, int, int]] = []
    close = Session.close

    def look(self: Session) -> None:
        query = "SELECT statement, generic_plans, custom_plans FROM pg_prepared_statements"
        found.extend(self.connection.execute(query).fetchall())
        close(self)

    monkeypatch.setattr(Session, "close", look)
    return found


def over(*jobs: Any) -> None:
    """Wait until the jobs, given as objects or ids, are over."""
    until(lambda: all(fresh(job).is_finished for job in jobs))


@pytest.mark.usefixtures("undeclared")
def test_a_worker_has_few_prepared_statements_whatever_it_has_done(
    statements: list[tuple[str, int, int]],
    owner: Connection,
    monkeypatch: pytest.MonkeyPatch,
    settings: Any,
) -> None:
    settings.PGQUEUE = {"POLL_INTERVAL": 0.05}
    monkeypatch.setattr(sessions, "REGISTER_EVERY", 0.05)
    monkeypatch.setattr(reporter, "FLUSH_EVERY", 0.05)
    with working(threads=3):
        for first_id in (1, 30_000, 40_000, 2**31 - 100, 2**40):
            value(owner, "SELECT setval('pgqueue_job_id_seq', %s)", first_id)
            for count in (1, 10):
                ids = enqueue_many(
                    call
                    for _ in range(count)
                    for call in (
                        tasks.add.bind(1, 2), tasks.fail_once.bind(), tasks.fail.bind(),
                        tasks.cancel_itself.bind(), tasks.raise_odd.bind("nul"), tasks.noop.bind(),
                    )
                ).ids  # fmt: skip
                ids.append(value(owner, "SELECT pgqueue_enqueue('tests.app.worker_tasks.noop')"))
                over(*ids)
            later = enqueue(tasks.snooze, 60)
            until(lambda later=later: fresh(later).started_at is not None)  # type: ignore[misc]
            name = f"job {first_id}"
            asked = enqueue(tasks.stoppable, name)
            assert tasks.gate(f"{name} runs").wait(tasks.DEADLINE)
            cancel(asked)
            over(asked)
    texts = Counter(text for text, _, _ in statements)
    for part in (
        "WITH picked",
        "_pgqueue_finish",
        "first_due",
        "fill_policy",
        "INTO pgqueue_worker",
        "_pgqueue_stat",
    ):
        assert [count for text, count in texts.items() if part in text] == [1], part
    assert max(texts.values()) == 1
    assert len(texts) <= 15
    assert [text for text, generic, custom in statements if custom or not generic] == []


@pytest.mark.parametrize("column", ["task_path", "on_lost", "waiting_reason"])
def test_a_column_gets_another_type_under_a_running_worker(
    owner: Connection, caplog: pytest.LogCaptureFixture, column: str
) -> None:
    """Its claims return the first two columns, and its reports write all of them to the history."""
    caplog.set_level(logging.INFO)
    old = value(
        owner,
        "SELECT format_type(atttypid, atttypmod) FROM pg_attribute"
        " WHERE attrelid = 'pgqueue_job'::regclass AND attname = %s",
        column,
    )
    try:
        with working() as worker:
            for _ in range(4):
                over(enqueue(tasks.add, 1), enqueue(tasks.fail_once))
            held = enqueue(tasks.hold, "held")
            assert tasks.gate("held runs").wait(tasks.DEADLINE)
            backend = backend_of(worker.producer)
            owner.execute(f"ALTER TABLE pgqueue_job ALTER COLUMN {column} TYPE text")
            tasks.gate("held").set()
            jobs = [enqueue(tasks.add, 1), enqueue(tasks.fail_once), held]
            over(*jobs)
            assert (backend_of(worker.producer) != backend) == (column != "waiting_reason")
    finally:
        owner.execute(f"ALTER TABLE pgqueue_job ALTER COLUMN {column} TYPE {old}")
    assert [fresh(job).status for job in jobs] == ["done"] * 3
    assert [fresh(job).attempts for job in jobs] == [1, 2, 1]
    said = [message for message in caplog.messages if message.startswith(LOST)]
    assert len(said) == (column != "waiting_reason")
    assert all("cached plan must not change result type" in message for message in said)
    assert {record.name for record in caplog.records if record.exc_info} <= {
        "django_pgqueue.job"
    }  # fail_once


def test_the_function_that_takes_reports_returns_another_type(
    owner: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    """The report of a job must not look like one that the server refuses, because then the job would fail."""
    caplog.set_level(logging.INFO)
    with working() as worker:
        for _ in range(4):
            over(enqueue(tasks.add, 1))
        held = enqueue(tasks.hold, "held")
        assert tasks.gate("held runs").wait(tasks.DEADLINE)
        backend = backend_of(worker.producer)
        with owner.transaction():
            owner.execute("ALTER FUNCTION _pgqueue_finish RENAME TO pgqueue_finish_v0")
            owner.execute(
                "CREATE FUNCTION _pgqueue_finish(bigint[], bigint[], text[], jsonb[], jsonb[], text[],"
                " double precision[], double precision[], double precision[], text[], integer, jsonb[],"
                " OUT accepted numeric[], OUT cancelled bigint[]) LANGUAGE sql"
                " AS 'SELECT * FROM pgqueue_finish_v0($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)'"
            )
        try:
            tasks.gate("held").set()
            over(held)
        finally:
            with owner.transaction():
                owner.execute("DROP FUNCTION _pgqueue_finish")
                owner.execute("ALTER FUNCTION pgqueue_finish_v0 RENAME TO _pgqueue_finish")
        assert backend_of(worker.producer) != backend
    assert (fresh(held).status, fresh(held).result, fresh(held).attempts) == ("done", "held", 1)
    assert [message.startswith(LOST) for message in caplog.messages].count(True) >= 1
    assert [record.message for record in caplog.records if record.exc_info] == []


@pytest.mark.parametrize("part", ["WITH picked", "_pgqueue_finish"])
def test_somebody_resets_the_session(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, part: str
) -> None:
    """psycopg does not know that the statements are gone."""
    caplog.set_level(logging.INFO)
    run = Session.run
    resets: list[str] = []

    def reset(self: Session, *statements: Any, durable: bool = False) -> Any:
        if resets == ["next"] and any(part in text for text, _ in statements):
            resets.append("done")
            self.connection.pgconn.exec_(b"DEALLOCATE ALL")
        return run(self, *statements, durable=durable)

    monkeypatch.setattr(Session, "run", reset)
    with working():
        for _ in range(4):
            over(enqueue(tasks.add, 1))
        resets.append("next")
        job = enqueue(tasks.add, 1)
        over(job)
        after = enqueue(tasks.add, 2)
        over(after)
    assert resets == ["next", "done"]
    assert [(fresh(each).status, fresh(each).attempts) for each in (job, after)] == [("done", 1)] * 2
    ours = [record for record in caplog.records if record.name.startswith("django_pgqueue")]
    warnings = [record.message for record in ours if record.levelno >= logging.WARNING]
    assert len(warnings) == 1
    assert warnings[0].startswith(LOST)
    assert "connected again" in caplog.messages
