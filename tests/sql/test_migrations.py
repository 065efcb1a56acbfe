"""Migrations go back and forth in any schema, survive a dump, and are told to run if they have not."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from django.apps import apps
from django.core.management import CommandError, call_command
from django.db import OperationalError, ProgrammingError, connection, connections
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.state import ProjectState
from django.test import override_settings

from django_pgqueue import enqueue, enqueue_many, operations as operations_module
from django_pgqueue.checks.database import check_database, database_problems
from django_pgqueue.management import _conditions
from django_pgqueue.models import Job
from django_pgqueue.operations import SQL_FOLDER, RunSQLFile
from example_project import embedded_programs
from tests.app.tasks import noop
from tests.support.databases import alias, fresh_database, in_schema, migrate, operations, roles, sql_files
from tests.support.jobs import (
    add,
    cancel,
    claim,
    fetch,
    finish,
    live,
    over,
    retry,
    rotate,
    sql,
    statuses,
    value,
)
from tests.support.sessions import Connect, Connection

pytestmark = pytest.mark.django_db(transaction=True)

EVERYTHING = (
    "SELECT relname FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace"
    " WHERE nspname NOT IN ('pg_catalog', 'information_schema', 'pg_toast')"
    " AND relkind IN ('r', 'p', 'S', 'v')"
    " UNION ALL SELECT proname FROM pg_proc JOIN pg_namespace ON pg_namespace.oid = pronamespace"
    " WHERE nspname NOT IN ('pg_catalog', 'information_schema') ORDER BY 1"
)

TRIGGERS = "SELECT DISTINCT tgname FROM pg_trigger WHERE NOT tgisinternal ORDER BY 1"


@pytest.fixture
def database(transactional_db: None) -> Iterator[str]:
    with fresh_database() as name:
        yield name


def names(using: str, query: str = EVERYTHING) -> list[str]:
    return [name for (name,) in fetch(query, using=using)]


def test_the_models_need_no_new_migration() -> None:
    call_command("makemigrations", check_changes=True, dry_run=True, verbosity=0)


def test_each_sql_file_is_installed_by_exactly_one_migration() -> None:
    used = Counter(operation.name for operation in operations() if isinstance(operation, RunSQLFile))
    assert used == dict.fromkeys((str(path.relative_to(SQL_FOLDER)) for path in sql_files()), 1)


def test_migrations_leave_the_search_path_as_it_was(database: str) -> None:
    with alias("fresh", NAME=database) as fresh:
        sql("CREATE SCHEMA one", using=fresh)
        sql("SET search_path TO one, public", using=fresh)
        call_command("migrate", "django_pgqueue", database=fresh, verbosity=0)
        assert fetch("SHOW search_path", using=fresh) == [("one, public",)]
        assert sql("SELECT 'pgqueue_job'::regclass::text", using=fresh) == "pgqueue_job"
        settings = sql("SELECT proconfig FROM pg_proc WHERE proname = '_pgqueue_rotate'", using=fresh)
        assert "search_path=one, pg_temp" in settings


def test_migrations_do_nothing_on_sqlite(tmp_path: Path) -> None:
    file = tmp_path / "lite.db"
    with alias("lite", ENGINE="django.db.backends.sqlite3", NAME=file, OPTIONS={}) as lite:
        tables = "SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE 'pgqueue%'"
        migrate(lite)
        assert names(lite, tables) == []
        migrate(lite, "zero")
        with pytest.raises(OperationalError):
            names(lite, "SELECT * FROM pgqueue_job")


def test_migrations_ask_the_router(database: str, settings: object) -> None:
    settings.DATABASE_ROUTERS = ["tests.sql.test_migrations.NoQueueHere"]  # type: ignore[attr-defined]
    with alias("fresh", NAME=database) as fresh:
        migrate(fresh)
        assert names(fresh) == ["django_migrations", "django_migrations_id_seq"]


class NoQueueHere:
    """A router that keeps the queue out of the database `fresh`."""

    def allow_migrate(self, db: str, app_label: str, **hints: object) -> bool | None:
        return False if (db, app_label) == ("fresh", "django_pgqueue") else None


def whole_life(connection: Connection) -> None:
    """Call every function that a worker calls, once."""
    first, second, third, fourth = add(connection, 4)
    assert cancel(connection, [first]) == 1
    assert [row.id for row in claim(connection)] == [second, third, fourth]
    assert finish(connection, [second]) == [second]
    assert finish(connection, [third], "retry", error='{"class": "E"}') == [third]
    connection.execute("CALL _pgqueue_finish_one(%s, 1, 'failed')", (fourth,))
    assert retry(connection, [second]) == 1
    assert live(connection) == {second: "pending", third: "retry"}
    assert statuses(connection)[fourth] == "failed"
    first_due = "SELECT * FROM _pgqueue_first_due(NULL, '{}', '{}', '{}', '{}', '{}', '{}')"
    assert len(connection.execute(first_due).fetchall()) == 1
    connection.execute("SELECT _pgqueue_retain('1 day', '2 days', 1048576)")
    connection.execute("SELECT pgqueue_run_now(ARRAY[%s::bigint])", (third,))
    (swept,) = over(connection, 9, "3 days", status="failed")
    assert value(connection, "SELECT _pgqueue_sweep(10)") == 1
    assert swept not in statuses(connection)
    over(connection, 2, "8 days")
    assert rotate(connection) == "emptied shelf 2"
    connection.execute("DELETE FROM pgqueue_job")


def test_a_schema_of_its_own_under_a_role_that_owns_nothing_else(connect: Connect) -> None:
    with (
        roles("owner", "worker") as (owner, worker),
        fresh_database() as database,
        alias("fresh", NAME=database) as fresh,
        alias("made", NAME=database, OPTIONS=in_schema("jobs", owner)) as made,
        alias("used", NAME=database, OPTIONS=in_schema("jobs", worker)) as used,
    ):
        sql(f'CREATE SCHEMA jobs AUTHORIZATION "{owner}"', using=fresh)
        migrate(made)
        public = "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace"
        assert names(fresh, public) == []
        for right in (
            "USAGE ON SCHEMA", "SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA",
            "USAGE ON ALL SEQUENCES IN SCHEMA",
        ):  # fmt: skip
            sql(f'GRANT {right} jobs TO "{worker}"', using=made)
        for using, role in ((made, owner), (used, worker)):
            connection = connect(using, autocommit=True)
            connection.execute(f'SET ROLE "{role}"')
            whole_life(connection)
            assert value(connection, "SELECT rolsuper FROM pg_roles WHERE rolname = current_user") is False
        # A function finds its own tables, whatever the search path of the caller is.
        stranger = connect(fresh, autocommit=True)
        assert value(stranger, "SHOW search_path") == '"$user", public'
        job = value(stranger, "SELECT jobs.pgqueue_enqueue('a.b')")
        assert value(stranger, "SELECT status FROM jobs.pgqueue_job WHERE id = %s", job) == "pending"
        assert value(stranger, "SELECT jobs.pgqueue_cancel(ARRAY[%s::bigint])", job) == [job]
        assert value(stranger, "SELECT jobs.pgqueue_retry(ARRAY[%s::bigint])", job) == [job]
        # Even a table with the same name earlier in the path does not confuse the functions.
        stranger.execute("CREATE TEMP TABLE pgqueue_ring AS SELECT 1 AS one")
        assert value(stranger, "SELECT jobs._pgqueue_rotate()") == "nothing to do"
        migrate(made, "zero")
        left = names(made, "SELECT relname FROM pg_class WHERE relnamespace = 'jobs'::regnamespace")
        assert sorted(left) == [
            "django_migrations", "django_migrations_id_seq", "django_migrations_pkey",
        ]  # fmt: skip


def test_a_schema_that_is_renamed(database: str, connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    with alias("fresh", NAME=database) as fresh:
        owner = connect(fresh, autocommit=True)
        owner.execute("CREATE SCHEMA jobs")
        with alias("before", NAME=database, OPTIONS=in_schema("jobs")) as before:
            migrate(before)
            assert database_problems(before) == []
        owner.execute('ALTER SCHEMA jobs RENAME TO "Later jobs"')
        with alias("after", NAME=database, OPTIONS=in_schema('"Later\\ jobs"')) as after:
            (error,) = database_problems(after)
            assert error.id == "pgqueue.E030"
            assert "expect their tables in the schema jobs, but" in error.msg
            monkeypatch.setattr(sys, "argv", ["manage.py", "migrate"])
            assert database_problems(after) == [], "migrate must not be prevented"
            migrate(after)
            monkeypatch.undo()
            assert database_problems(after) == []
            whole_life(connect(after, autocommit=True))


def client_program(name: str) -> str:
    """Return the path of a program of the server's own version, or skip the test."""
    path = embedded_programs._installed() / name
    if not path.exists():
        pytest.skip(f"this server comes without {name}")
    return str(path)


SCHEMAS = ("public", "jobs")


def test_two_schemas_of_one_database_share_neither_locks_nor_channels_and_psql_restores_a_dump_of_both(
    connect: Connect,
) -> None:
    with (
        fresh_database() as database,
        alias("one", NAME=database, OPTIONS=in_schema(SCHEMAS[0])) as first,
        alias("two", NAME=database, OPTIONS=in_schema(SCHEMAS[1])) as second,
    ):
        sql(f"CREATE SCHEMA {SCHEMAS[1]}", using=first)
        migrate(first)
        migrate(second)
        one, two, other = connect(first), connect(second, autocommit=True), connect(second, autocommit=True)
        assert value(one, "SELECT _pgqueue_channel()") != value(two, "SELECT _pgqueue_channel()")
        keys = "SELECT ARRAY[_pgqueue_lock_key('sleep', 'a'), _pgqueue_lock_key('maintenance', 'a')]"
        assert not set(value(one, keys)) & set(value(two, keys))
        # A sleeping worker of the second is not notified by the first. Both can rotate at the same time.
        two.execute(f'LISTEN "{value(two, "SELECT _pgqueue_channel()")}"')
        two.execute("SELECT pg_advisory_lock_shared(_pgqueue_lock_key('sleep', ''))")
        add(one)
        one.commit()
        add(other)
        assert [heard.payload for heard in two.notifies(timeout=20, stop_after=1)] == ["wake default"]
        assert rotate(one) == rotate(other) == "nothing to do"
        assert list(two.notifies(timeout=0)) == []
        one.commit()
        jobs = [live(one), live(two)]
        assert [[*of_schema.values()] for of_schema in jobs] == [["pending"], ["pending"]]
        given = connections["default"].settings_dict
        server = {
            "PGHOST": given["HOST"], "PGPORT": str(given["PORT"] or 5432), "PGUSER": given["USER"],
            "PGPASSWORD": given["PASSWORD"],
        }  # fmt: skip
        dump = subprocess.run(
            [client_program("pg_dump"), "--no-owner", database], env=server, check=True, capture_output=True
        ).stdout
    with fresh_database() as restored:
        subprocess.run(
            [client_program("psql"), "-q", "-v", "ON_ERROR_STOP=1", restored],
            env=server, check=True, input=dump, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        for schema, before in zip(SCHEMAS, jobs, strict=True):
            with alias("restored", NAME=restored, OPTIONS=in_schema(schema)) as after:
                connection = connect(after, autocommit=True)
                assert live(connection) == before
                connection.execute("DELETE FROM pgqueue_job")
                assert database_problems(after) == []
                whole_life(connection)


# -- new code on a database that is not migrated yet

ENQUEUES: list[Callable[[], object]] = [lambda: enqueue(noop, 1), lambda: enqueue_many([noop.bind(1)])]


@pytest.mark.promise("uninstall", "not-migrated-worker", "not-migrated-enqueue")
def test_migrations_go_back_one_by_one_and_forward_again_and_each_state_says_what_to_do(
    database: str,
) -> None:
    with alias("fresh", NAME=database) as fresh:
        ours = {"BACKEND": "django_pgqueue.backend.PgQueueBackend", "OPTIONS": {"database": fresh}}
        with override_settings(TASKS={"default": ours}):
            migrate(fresh)
            whole = names(fresh)
            assert {"pgqueue_job_past_8", "_pgqueue_finish_one"} <= {*whole}
            assert names(fresh, TRIGGERS) == [
                "pgqueue_attach", "pgqueue_check_size", "pgqueue_guard", "pgqueue_schedule_changed",
                "pgqueue_wake_insert", "pgqueue_wake_update",
            ]  # fmt: skip
            nodes = MigrationLoader(connections[fresh]).graph.nodes
            _newest, *before = sorted((name for app, name in nodes if app == "django_pgqueue"), reverse=True)
            enqueue(noop.using(database=fresh))
            for name in before:
                migrate(fresh, name)
                refused_until_migrated(fresh)
            assert names(fresh, TRIGGERS) == []
            assert "pgqueue_job_past_8" in names(fresh)
            assert "_pgqueue_finish_one" not in names(fresh)
            migrate(fresh, "zero")
            refused_until_migrated(fresh)
            assert names(fresh) == ["django_migrations", "django_migrations_id_seq"]
            migrate(fresh)
        assert names(fresh) == whole
        assert sql("SELECT pgqueue_enqueue('a.b')", using=fresh) == 1


def refused_until_migrated(fresh: str) -> None:
    with pytest.raises(CommandError, match=r"manage\.py migrate --database fresh"):
        _conditions.check_database(fresh)
    (warning,) = check_database(None, databases=[fresh])
    assert warning.id == "pgqueue.W003"
    for enqueue_one in ENQUEUES:
        enqueues(enqueue_one, fresh)


def enqueues(add: Callable[[], object], fresh: str) -> None:
    """Enqueue one job, or raise the error that says what to do."""
    try:
        add()
    except ProgrammingError as error:
        assert f"manage.py migrate django_pgqueue --database={fresh}" in str(error)  # noqa: PT017 - or it works
    else:
        assert Job.objects.using(fresh).exists()


# -- a migration that cannot have a lock at once does not hold up the queue

WAKING = RunSQLFile("triggers.sql")
EXISTS = "SELECT count(*) = 1 FROM pg_trigger WHERE tgname = 'pgqueue_wake_insert'"


def pauses(monkeypatch: pytest.MonkeyPatch, during: Callable[[int], object]) -> list[float]:
    """Let `during` happen in each pause, which then takes no time. Return the pauses."""
    found: list[float] = []

    def pause(seconds: float) -> None:
        found.append(seconds)
        during(len(found))

    monkeypatch.setattr(operations_module, "sleep", pause)
    return found


def drop_and_create() -> None:
    state = ProjectState.from_apps(apps)
    with connection.schema_editor() as editor, connection.cursor() as cursor:
        cursor.execute("SET LOCAL lock_timeout = '7s'")
        WAKING.database_backwards("django_pgqueue", editor, state, state)
        WAKING.database_forwards("django_pgqueue", editor, state, state)
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
    assert found == [operations_module._PAUSE] * 2
    assert worker.execute(EXISTS).fetchone() == (True,)
    assert worker.execute("SELECT count(*) FROM pgqueue_job_live").fetchone() == (2,)


@pytest.mark.promise("migrate-gives-up")
def test_a_migration_gives_up_and_names_who_holds_the_lock(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder = connect(autocommit=False)
    holder.execute("SELECT count(*) FROM pgqueue_job_live")
    monkeypatch.setattr(operations_module, "_TRIES", 2)
    found = pauses(monkeypatch, lambda tries: None)
    with pytest.raises(OperationalError, match=rf"triggers.*process {holder.info.backend_pid} "):
        drop_and_create()
    assert len(found) == 1
    assert holder.execute(EXISTS).fetchone() == (True,)


def test_other_errors_are_raised_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    found = pauses(monkeypatch, lambda tries: None)
    with pytest.raises(OperationalError, match="statement timeout"), connection.schema_editor() as editor:
        operations_module._with_lock_retry(
            editor, "x", [("SET LOCAL statement_timeout = 1", None), ("SELECT pg_sleep(9)", None)]
        )
    assert found == []


def test_sqlmigrate_shows_the_limit(capsys: pytest.CaptureFixture[str]) -> None:
    with connection.schema_editor(collect_sql=True) as editor:
        state = ProjectState.from_apps(apps)
        WAKING.database_forwards("django_pgqueue", editor, state, state)
    assert "'lock_timeout', '500ms'" in editor.collected_sql[0]
    assert any("CREATE CONSTRAINT TRIGGER pgqueue_wake_insert" in sql for sql in editor.collected_sql)
