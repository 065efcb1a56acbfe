"""A migration that cannot have a lock at once does not hold up the queue."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.apps import apps
from django.db import OperationalError, connection
from django.db.migrations.state import ProjectState

from django_pgqueue import operations
from django_pgqueue.operations import RunSQLFile
from tests.support.sessions import Connect

pytestmark = pytest.mark.django_db(transaction=True)

TRIGGERS = RunSQLFile("triggers.sql")
EXISTS = "SELECT count(*) = 1 FROM pg_trigger WHERE tgname = 'pgqueue_wake_insert'"


def pauses(monkeypatch: pytest.MonkeyPatch, during: Callable[[int], object]) -> list[float]:
    """Let `during` happen in each pause, which then takes no time. Return the pauses."""
    found: list[float] = []

    def pause(seconds: float) -> None:
        found.append(seconds)
        during(len(found))

    monkeypatch.setattr(operations, "sleep", pause)
    return found


def drop_and_create() -> None:
    state = ProjectState.from_apps(apps)
    with connection.schema_editor() as editor, connection.cursor() as cursor:
        cursor.execute("SET LOCAL lock_timeout = '7s'")
        TRIGGERS.database_backwards("django_pgqueue", editor, state, state)
        TRIGGERS.database_forwards("django_pgqueue", editor, state, state)
        cursor.execute("SHOW lock_timeout")
        assert cursor.fetchone() == ("7s",)  # what follows has its own limit


@pytest.mark.promise("migrate-gives-way")
def test_the_queue_goes_on_between_the_tries(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    holder, worker = connect(autocommit=False), connect(autocommit=True, options="-c lock_timeout=100ms")
    holder.execute("SELECT count(*) FROM pgqueue_job_live")

    def goes_on(tries: int) -> None:
        worker.execute("SELECT pgqueue_enqueue('tests.app.tasks.noop')")
        if tries == 2:
            holder.commit()

    found = pauses(monkeypatch, goes_on)
    drop_and_create()
    assert found == [operations._PAUSE] * 2
    assert worker.execute(EXISTS).fetchone() == (True,)
    assert worker.execute("SELECT count(*) FROM pgqueue_job_live").fetchone() == (2,)


@pytest.mark.promise("migrate-gives-up")
def test_a_migration_gives_up_and_names_who_holds_the_lock(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder = connect(autocommit=False)
    holder.execute("SELECT count(*) FROM pgqueue_job_live")
    monkeypatch.setattr(operations, "_TRIES", 2)
    found = pauses(monkeypatch, lambda tries: None)
    with pytest.raises(OperationalError, match=rf"triggers.*process {holder.info.backend_pid} "):
        drop_and_create()
    assert len(found) == 1
    assert holder.execute(EXISTS).fetchone() == (True,)


def test_other_errors_are_raised_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    found = pauses(monkeypatch, lambda tries: None)
    with pytest.raises(OperationalError, match="statement timeout"), connection.schema_editor() as editor:
        operations._with_lock_retry(
            editor, "x", [("SET LOCAL statement_timeout = 1", None), ("SELECT pg_sleep(9)", None)]
        )
    assert found == []


def test_sqlmigrate_shows_the_limit(capsys: pytest.CaptureFixture[str]) -> None:
    with connection.schema_editor(collect_sql=True) as editor:
        state = ProjectState.from_apps(apps)
        TRIGGERS.database_forwards("django_pgqueue", editor, state, state)
    assert "'lock_timeout', '500ms'" in editor.collected_sql[0]
    assert any("CREATE CONSTRAINT TRIGGER pgqueue_wake_insert" in sql for sql in editor.collected_sql)
