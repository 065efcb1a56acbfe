"""``manage.py pgqueue roles``: it prints or runs, again and again, takes everything back, and a later
``migrate`` gives the roles what it adds.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from django.apps import apps
from django.core.management import CommandError, call_command
from django.db import connections
from django.db.models.signals import pre_migrate
from pytest_django import DjangoDbBlocker

from django_pgqueue.checks.database import database_problems
from django_pgqueue.models import FailureGroup, Job
from django_pgqueue.postgres import roles as roles_module
from django_pgqueue.postgres.roles import CALLED, WORKER_ONLY, Kept, kept_roles, lacking
from tests.management.test_subcommands import run
from tests.support.databases import alias, definition, fresh_database, in_schema, migrate, roles
from tests.support.jobs import sql, value
from tests.support.sessions import Connection, open_raw
from tests.support.wording import lasting, text_of

from .conftest import changed

pytestmark = pytest.mark.django_db(transaction=True)

RIGHTS = """
    SELECT jsonb_object_agg(one.name, sorted.rights) FROM (
        SELECT relname AS name, relacl AS rights, '' AS more FROM pg_class WHERE relname LIKE 'pgqueue\\_%'
        UNION ALL
        SELECT proname, proacl, prosecdef || proconfig::text FROM pg_proc WHERE proname ~ '^_?pgqueue_'
        UNION ALL
        SELECT 'schema', nspacl, '' FROM pg_namespace WHERE nspname = 'public'
    ) AS one, LATERAL (
        SELECT one.more || coalesce(string_agg(item::text, ' ' ORDER BY item::text), '') AS rights
        FROM unnest(one.rights) AS each (item)
    ) AS sorted
"""


command = partial(run, "roles")


def test_what_it_prints_is_what_it_does_and_it_can_be_repeated(one: Connection) -> None:
    with roles("a", "b") as (enqueuer, worker):
        names = ["--enqueuer", enqueuer, "--worker", worker]
        # The first time leaves owners' rights in the catalogs that were implied before.
        command("--apply", *names)
        assert command("--apply", "--drop", *names) == f"Took the rights of {enqueuer} and {worker}."
        before = value(one, RIGHTS)
        assert value(one, "SELECT count(*) FROM pg_roles WHERE rolname IN (%s, %s)", enqueuer, worker) == 0
        assert command("--apply", *names) == f"Gave rights to {enqueuer} and {worker}."
        applied = value(one, RIGHTS)
        assert applied != before
        command("--apply", *names)
        assert value(one, RIGHTS) == applied
        one.execute(command("--drop", *names))
        one.execute(command("--drop", *names))
        assert value(one, RIGHTS) == before
        one.execute(command(*names))
        assert value(one, RIGHTS) == applied
        command("--apply", "--drop", *names)


def test_an_owner_who_is_no_superuser_in_a_schema_of_its_own() -> None:
    """It needs CREATEROLE and nothing else."""
    with roles("owner") as (owner,), fresh_database() as database, open_raw() as administrator:
        administrator.execute(f'ALTER ROLE "{owner}" CREATEROLE')
        names = ["--enqueuer", f"{owner}_a", "--worker", f'{owner}_b "quoted"']
        with alias("fresh", NAME=database) as fresh:
            sql(f'CREATE SCHEMA "own jobs" AUTHORIZATION "{owner}"', using=fresh)
        with alias("made", NAME=database, OPTIONS=in_schema('"own\\ jobs"', owner)) as made:
            migrate(made)
            command("--apply", *names, "--database", made)
            role = f"{owner}_a"
            with alias("used", NAME=database, OPTIONS=in_schema("public", role)) as used:
                job = sql("""SELECT "own jobs".pgqueue_enqueue('a.b')""", using=used)
                assert sql('SELECT status FROM "own jobs".pgqueue_result(%s)', job, using=used) == "pending"
                assert Job.objects.using(made).get().context == {"role": role}
            command("--apply", "--drop", *names, "--database", made)
        count = administrator.execute(
            "SELECT count(*) FROM pg_roles WHERE rolname LIKE %s", (f"{owner}\\__%",)
        )
        assert count.fetchone() == (0,)


def test_a_role_that_owns_something_else_stays_without_rights(one: Connection) -> None:
    with roles("a", "b") as (enqueuer, worker):
        one.execute(f'CREATE SCHEMA theirs AUTHORIZATION "{worker}"')
        names = ["--enqueuer", enqueuer, "--worker", worker]
        command("--apply", *names)
        command("--apply", "--drop", *names)
        assert value(one, "SELECT count(*) FROM pg_roles WHERE rolname IN (%s, %s)", enqueuer, worker) == 1
        assert not value(one, "SELECT has_table_privilege(%s, 'pgqueue_job', 'SELECT')", worker)


@pytest.mark.parametrize(("grant", "what"), [
    ("GRANT CREATE ON SCHEMA public TO PUBLIC", "create objects in the schema public"),
    ("GRANT SELECT ON pgqueue_job_past_3 TO PUBLIC", "select rows of pgqueue_job_past_3"),
    ("GRANT SELECT (args) ON pgqueue_job TO PUBLIC", "select rows of pgqueue_job"),
    ("GRANT DELETE ON pgqueue_pause TO PUBLIC", "delete rows of pgqueue_pause"),
])  # fmt: skip
@pytest.mark.promise("roles-not-more")
def test_rights_that_come_from_elsewhere_are_an_error(one: Connection, grant: str, what: str) -> None:
    revoke = grant.replace("GRANT", "REVOKE", 1).replace(" TO ", " FROM ")
    with roles("a", "b") as (enqueuer, worker):
        names = ["--enqueuer", enqueuer, "--worker", worker]
        with (
            changed(one, grant, revoke),
            pytest.raises(CommandError, match=f"{enqueuer} can still {what}"),
        ):
            command("--apply", *names)
        command("--apply", "--drop", *names)


def test_errors_say_what_to_do(transactional_db: None) -> None:
    with pytest.raises(CommandError, match="must name two roles"):
        command("--enqueuer", "one", "--worker", "one")
    with pytest.raises(CommandError, match=r"Nothing was changed.*reserved"):
        command("--apply", "--enqueuer", "pg_mine")


# -- after a later migrate: they get rights to what it adds, and lose none

DROP = "SELECT string_agg('DROP FUNCTION ' || oid::regprocedure, ';') FROM pg_proc WHERE proname = ANY (%s)"
RESULT = "SELECT status FROM pgqueue_result(%s)"
COUNT = "SELECT count(*) FROM pgqueue_failure_group"


class Place:
    """A database of its own with the roles."""

    def __init__(self, database: str, made: str, names: list[str]) -> None:
        self.database, self.alias = database, made
        self.enqueuer, self.worker, self.stranger = names

    def ask(self, query: str, *parameters: Any, role: str = "") -> Any:
        """Return the first value of a query as this role, or as the owner."""
        options: dict[str, Any] = {"OPTIONS": in_schema("public", role)} if role else {}
        with alias("asking", NAME=self.database, **options) as asking:
            return sql(query, *parameters, using=asking)


@pytest.fixture(scope="module")
def migrated(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[str]:
    with django_db_blocker.unblock(), fresh_database() as database:
        with alias("made", NAME=database) as made:
            migrate(made)
            with connections[made].cursor() as cursor:
                cursor.execute("REVOKE CREATE ON SCHEMA public FROM PUBLIC")  # as since PostgreSQL 15
        yield database


@pytest.fixture
def bare(migrated: str) -> Iterator[Place]:
    """The database without the roles of the command."""
    with roles("enqueuer", "worker", "stranger") as names, alias("made", NAME=migrated) as made:
        place = Place(migrated, made, names)
        yield place
        place.ask(f'DROP OWNED BY "{place.stranger}"')


@pytest.fixture
def place(bare: Place) -> Iterator[Place]:
    """The database with the roles."""
    names = ["--enqueuer", bare.enqueuer, "--worker", bare.worker]
    call_command("pgqueue", "roles", "--apply", *names, "--database", bare.alias)
    yield bare
    call_command("pgqueue", "roles", "--apply", "--drop", *names, "--database", bare.alias)


def migrate_with(place: Place, change: Callable[..., None]) -> None:
    """Migrate, as if a migration made this change."""
    ours = apps.get_app_config("django_pgqueue")
    pre_migrate.connect(change, sender=ours)
    try:
        migrate(place.alias)
    finally:
        pre_migrate.disconnect(change, sender=ours)


def test_a_migrate_gives_the_roles_rights_to_the_functions_and_tables_that_it_adds(place: Place) -> None:
    def add(**kwargs: Any) -> None:
        with connections[place.alias].schema_editor() as editor:
            sql("DROP FUNCTION pgqueue_result", using=place.alias)
            sql(definition("pgqueue_result"), using=place.alias)
            editor.delete_model(FailureGroup)
            editor.create_model(FailureGroup)

    migrate_with(place, add)
    job = place.ask("SELECT pgqueue_enqueue('a.b')", role=place.enqueuer)
    assert place.ask(RESULT, job, role=place.enqueuer) == "pending"
    assert place.ask(COUNT, role=place.worker) == 0
    assert lacking(place.alias, kept_roles(place.alias)) == []
    with pytest.raises(Exception, match="permission denied"):
        place.ask(COUNT, role=place.enqueuer)
    with pytest.raises(Exception, match="permission denied"):
        place.ask("SELECT pgqueue_enqueue('a.b')", role=place.stranger)


def test_a_migrate_that_drops_all_functions_by_which_the_roles_are_known(place: Place) -> None:
    """As when several releases are installed at once."""
    functions = (*CALLED, *WORKER_ONLY)
    seen = []

    def replace(**kwargs: Any) -> None:
        sql(sql(DROP, [*functions], using=place.alias), using=place.alias)
        for name in functions:
            sql(definition(name), using=place.alias)
        seen.append(kept_roles(place.alias))

    migrate_with(place, replace)
    assert seen == [Kept([], [])]
    assert kept_roles(place.alias) == Kept([place.enqueuer], [place.worker])
    assert lacking(place.alias, kept_roles(place.alias)) == []


def test_what_was_granted_by_hand_stays(place: Place) -> None:
    place.ask(f'GRANT EXECUTE ON FUNCTION _pgqueue_enqueue TO "{place.stranger}"')
    place.ask(f'GRANT SELECT ON pgqueue_job TO "{place.stranger}"')
    place.ask(f'REVOKE INSERT ON pgqueue_pause FROM "{place.worker}"')
    migrate(place.alias)
    assert place.ask("SELECT count(*) FROM pgqueue_job", role=place.stranger) >= 0
    assert place.ask("SELECT has_table_privilege(%s, 'pgqueue_pause', 'INSERT')", place.worker)
    assert not place.ask("SELECT has_table_privilege(%s, 'pgqueue_pause', 'INSERT')", place.stranger)


def test_a_database_without_roles_stays_as_it_is(bare: Place) -> None:
    bare.ask(f'GRANT EXECUTE ON FUNCTION _pgqueue_enqueue TO "{bare.stranger}"')
    migrate(bare.alias)
    assert kept_roles(bare.alias) == Kept([], [])
    assert not bare.ask("SELECT prosecdef FROM pg_proc WHERE proname = '_pgqueue_enqueue'")


def test_a_check_tells_what_the_roles_lack(place: Place, wording: Any) -> None:
    assert database_problems(place.alias) == []
    place.ask(f'REVOKE EXECUTE ON FUNCTION pgqueue_result FROM "{place.enqueuer}"')
    place.ask("GRANT EXECUTE ON FUNCTION pgqueue_result TO PUBLIC")
    place.ask("ALTER FUNCTION _pgqueue_wake SECURITY INVOKER")
    place.ask(f'REVOKE USAGE ON SEQUENCE pgqueue_job_id_seq FROM "{place.worker}"')
    said = lasting(text_of(database_problems(place.alias)), enqueuer=place.enqueuer, worker=place.worker)
    assert said == wording
    place.ask(f'REVOKE INSERT ON pgqueue_pause FROM "{place.worker}"')
    assert f"{place.worker} lacks rights to pgqueue_pause" in lacking(place.alias, kept_roles(place.alias))


def test_a_migrate_by_somebody_else_warns(
    place: Place, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    place.ask("ALTER FUNCTION _pgqueue_wake SECURITY INVOKER")
    options = in_schema("public", place.stranger)
    with alias("theirs", NAME=place.database, OPTIONS=options) as theirs, caplog.at_level(logging.WARNING):
        roles_module.after_migrate(using=theirs, plan=[])
    assert "_pgqueue_wake runs with the rights of its caller), and this user cannot" in caplog.text
    assert "must be owner" in caplog.text
