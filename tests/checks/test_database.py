"""The checks that query the database. The other checks are tested in `test_tasks`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import pytest_django
from django.core.checks import CheckMessage, run_checks
from django.core.management import CommandError, call_command
from django.db import connections, transaction
from django.test import override_settings

from django_pgqueue.checks import database as database_module
from django_pgqueue.checks.database import check_database, database_problems
from django_pgqueue.maintenance.payloads import synchronize_tasks
from tests.receipts.models import Order, Receipt
from tests.support import databases
from tests.support.databases import sql_files
from tests.support.jobs import sql
from tests.support.wording import text_of


def ids(messages: list[CheckMessage]) -> list[str | None]:
    return [message.id for message in messages]


@pytest.fixture
def empty() -> Iterator[str]:
    """An alias of an empty database, to which jobs go."""
    with databases.fresh_database() as name, databases.alias("fresh", NAME=name) as alias:
        ours = {"BACKEND": "django_pgqueue.backend.PgQueueBackend", "OPTIONS": {"database": alias}}
        with override_settings(TASKS={"default": ours}):
            yield alias


@pytest.fixture
def any_alias(django_db_setup: None, django_db_blocker: pytest_django.DjangoDbBlocker) -> Iterator[None]:
    """Allow connections to any alias, which the mark ``django_db`` does not do."""
    with django_db_blocker.unblock():
        yield


@pytest.mark.django_db
def test_a_migrated_database_has_no_problems() -> None:
    synchronize_tasks("default")  # other tests of this process may have declared tasks after ``migrate``
    assert database_problems("default") == []
    assert run_checks(tags=["database"], databases=["default"]) == []


@pytest.mark.django_db
@pytest.mark.parametrize("given", [{}, {"databases": None}, {"databases": ["somewhere"]}], ids=str)
def test_only_databases_that_are_named_and_that_jobs_go_to_are_asked(
    given: dict[str, Any], django_assert_num_queries: pytest_django.DjangoAssertNumQueries
) -> None:
    with django_assert_num_queries(0):
        assert check_database(None, **given) == []


def test_the_functions_expected_are_those_of_the_files() -> None:
    created = set()
    for path in sql_files():
        created |= set(re.findall(r"^CREATE (?:FUNCTION|PROCEDURE) (\w+)", path.read_text(), re.MULTILINE))
    assert database_module._functions() == created


def test_a_later_drop_is_understood(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.sql").write_text("CREATE FUNCTION _pgqueue_a(x int) ..;\n")
    (tmp_path / "b.sql").write_text("DROP FUNCTION _pgqueue_a;\nCREATE PROCEDURE pgqueue_b()")
    monkeypatch.setattr(database_module, "SQL_FOLDER", tmp_path)
    assert database_module._functions.__wrapped__() == {"pgqueue_b"}


@pytest.mark.django_db(transaction=True)
def test_an_empty_database_until_it_is_migrated(
    empty: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, wording: Any
) -> None:
    """A warning only, so that ``migrate`` works; but workers refuse to start."""
    assert text_of(check_database(None, databases=[empty])) == wording
    assert ids(database_problems(empty)) == ["pgqueue.E009"]
    for one_process in (False, True):
        with pytest.raises(CommandError, match=r"is not migrated: .* Run: python manage\.py migrate"):
            call_command("runqueueworker", one_process=one_process, database=empty, skip_checks=True)
    assert caplog.messages == []
    monkeypatch.setattr("sys.argv", ["manage.py", "migrate", "--database", empty])
    assert check_database(None, databases=[empty]) == [], "the command is not told to migrate"
    monkeypatch.undo()
    said = StringIO()
    # Those of the payload models, and of tasks that other tests may have left behind.
    others = ["pgqueue.W001", "pgqueue.E020", "pgqueue.E007", "pgqueue.W002"]
    with override_settings(SILENCED_SYSTEM_CHECKS=others):
        call_command("migrate", "django_pgqueue", database=empty, verbosity=0, skip_checks=False, stderr=said)
    assert "pgqueue.W003" in said.getvalue()
    assert check_database(None, databases=[empty]) == []


@pytest.mark.django_db(transaction=True)
def test_tables_made_without_migrations(empty: str, wording: Any) -> None:
    with override_settings(MIGRATION_MODULES={"django_pgqueue": None}, INSTALLED_APPS=["django_pgqueue"]):
        call_command("migrate", database=empty, run_syncdb=True, verbosity=0)
        (message,) = check_database(None, databases=[empty])
    assert text_of([message]) == wording


#: What has happened to the database, and whether the hint mends it.
HARM = {
    "DROP FUNCTION pgqueue_run_now": False,
    "CREATE SCHEMA elsewhere; ALTER FUNCTION pgqueue_run_now SET SCHEMA elsewhere": False,
    "CREATE FUNCTION _pgqueue_finish_9() RETURNS int LANGUAGE sql AS 'SELECT 1'": False,
    "DELETE FROM pgqueue_ring": True,
    "DELETE FROM pgqueue_status": True,
    "DELETE FROM pgqueue_status WHERE status = 'retry'": True,
    "UPDATE pgqueue_status SET is_claimable = false WHERE status = 'retry'": True,
}


@pytest.mark.django_db
def test_what_may_be_wrong_with_a_database(wording: Any) -> None:
    said = []
    for harm, is_mended in HARM.items():
        with transaction.atomic():
            sql(harm)
            (message,) = database_problems("default")
            assert message in check_database(None, databases=["default"])
            said.append(f"{harm}\n{text_of([message])}")
            if is_mended:
                sql(str(message.hint).removeprefix("Run in SQL: "))
                assert database_problems("default") == []
            transaction.set_rollback(True)
    for keep in ({"RETENTION": 259_200}, {"FAILED_RETENTION": timedelta(days=3), "RETENTION": 86_400}):
        with override_settings(PGQUEUE=keep):
            said.append(f"{keep}\n{text_of(database_problems('default'))}")
    assert "\n".join(said) == wording


@pytest.mark.django_db
def test_what_does_not_count() -> None:
    sql("CREATE FUNCTION pgqueues_of_somebody() RETURNS int LANGUAGE sql AS 'SELECT 1'")
    with override_settings(PGQUEUE={"RETENTION": "soon"}):  # left to its own check
        assert database_problems("default") == []


@pytest.mark.usefixtures("any_alias")
def test_e011_the_server_is_too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    with databases.alias("ancient"):
        wrapper = connections["ancient"]
        wrapper.close()
        monkeypatch.setattr(type(wrapper.features), "minimum_database_version", (99,))
        # Django reads the version once per process.
        monkeypatch.setattr("django.db.backends.base.base.RAN_DB_VERSION_CHECK", set())
        messages = database_problems("ancient")
        wrapper.close()
        monkeypatch.setattr(database_module, "queue_databases", lambda: {"ancient": "a test"})
        messages += check_database(None, databases=["ancient"])
    assert ids(messages) == ["pgqueue.E011", "pgqueue.E011"]
    assert "99 or later is required" in messages[0].msg
    assert "14" in str(messages[0].hint)


@pytest.mark.usefixtures("any_alias")
def test_e012_the_server_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    with databases.alias("gone"):
        connections["gone"].close()
        connections["gone"].settings_dict["PORT"] = "1"
        monkeypatch.setattr(database_module, "queue_databases", lambda: {"gone": "a test"})
        (message,) = check_database(None, databases=["gone"])
    assert message.id == "pgqueue.E012"
    assert "DATABASES['gone']" in str(message.hint)


def test_each_table_that_a_migration_fills_is_checked() -> None:
    """But for those that fill themselves, or that count as full while they are empty."""
    filled = {
        table
        for path in sql_files()
        for table in re.findall(r"^INSERT INTO (\w+)", path.read_text(), re.MULTILINE)
    }
    harmless = {"pgqueue_gone", "pgqueue_duty"}
    assert filled - harmless == {"pgqueue_status", "pgqueue_ring"}  # W011, E013


@pytest.mark.django_db
@pytest.mark.parametrize("table", ["pgqueue_job", "pgqueue_batch", "receipts_receipt"])
def test_e026_the_sequence_is_behind_the_rows(table: str) -> None:
    Receipt.objects.create(order=Order.objects.create(), email="a@b.c")
    sql("SET LOCAL session_replication_role = replica")  # as restores do
    key = sql("SELECT nextval('pgqueue_job_id_seq') + 5")
    values = {
        "pgqueue_job": "(id, task_path) VALUES (%s, 'a.b')",
        "pgqueue_batch": "(id) VALUES (%s)",
        "receipts_receipt": "(job_id, order_id, email) SELECT %s, id, 'a@b.c' FROM receipts_order",
    }
    sql(f"INSERT INTO {table} {values[table]}", key)
    assert database_problems("default") == []  # it stops no worker
    (message,) = check_database(None, databases=["default"])
    assert message.id == "pgqueue.E026"
    assert f"{table} has the id {key}" in message.msg
    sql(str(message.hint).removeprefix("Run in SQL: "))
    assert check_database(None, databases=["default"]) == []
    assert sql("SELECT nextval('pgqueue_job_id_seq')") == key + 1


@pytest.mark.django_db(transaction=True)
def test_a_database_that_cannot_hold_every_character(wording: Any) -> None:
    with (
        databases.fresh_database("ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0") as name,
        databases.alias("latin", NAME=name) as latin,
    ):
        databases.migrate(latin)
        (message,) = database_problems(latin)
    assert text_of([message]) == wording


def test_a_database_of_another_kind_is_left_to_its_own_check(monkeypatch: pytest.MonkeyPatch) -> None:
    lite = {**connections.settings["default"], "ENGINE": "django.db.backends.sqlite3"}
    monkeypatch.setitem(connections.settings, "lite", lite)
    monkeypatch.setattr(database_module, "queue_databases", lambda: {"lite": "a test"})
    try:
        assert check_database(None, databases=["lite"]) == []
    finally:
        del connections["lite"]
