"""The roles after a later ``migrate``: they get rights to what it adds, and lose none."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest
from django.apps import apps
from django.core.management import call_command
from django.db import connections
from django.db.models.signals import pre_migrate
from pytest_django import DjangoDbBlocker

from django_pgqueue.checks.database import database_problems
from django_pgqueue.models import FailureGroup
from django_pgqueue.postgres import roles as roles_module
from django_pgqueue.postgres.roles import CALLED, WORKER_ONLY, Kept, kept_roles, lacking
from tests.support.databases import alias, fresh_database, in_schema, migrate, roles
from tests.support.installed import definition

pytestmark = pytest.mark.django_db(transaction=True)

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
        with alias("asking", NAME=self.database, **options) as asking, connections[asking].cursor() as cursor:
            cursor.execute(query, parameters or None)
            return cursor.fetchone()[0] if cursor.description else None


@pytest.fixture(scope="module")
def migrated(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[str]:
    with django_db_blocker.unblock(), fresh_database() as database:
        with alias("made", NAME=database) as made:
            migrate(made)
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


def test_a_migrate_gives_the_roles_rights_to_the_functions_and_tables_that_it_adds(place: Place) -> None:
    def add(**kwargs: Any) -> None:
        connection = connections[place.alias]
        with connection.cursor() as cursor, connection.schema_editor() as editor:
            cursor.execute("DROP FUNCTION pgqueue_result")
            cursor.execute(definition("pgqueue_result"), None)
            editor.delete_model(FailureGroup)
            editor.create_model(FailureGroup)

    ours = apps.get_app_config("django_pgqueue")
    pre_migrate.connect(add, sender=ours)
    try:
        migrate(place.alias)
    finally:
        pre_migrate.disconnect(add, sender=ours)
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
        with connections[place.alias].cursor() as cursor:
            cursor.execute(DROP, [[*functions]])
            cursor.execute(cursor.fetchone()[0])
            for name in functions:
                cursor.execute(definition(name), None)
        seen.append(kept_roles(place.alias))

    pre_migrate.connect(replace, sender=apps.get_app_config("django_pgqueue"))
    try:
        migrate(place.alias)
    finally:
        pre_migrate.disconnect(replace, sender=apps.get_app_config("django_pgqueue"))
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


def test_a_check_tells_what_the_roles_lack(place: Place) -> None:
    assert database_problems(place.alias) == []
    place.ask(f'REVOKE EXECUTE ON FUNCTION pgqueue_result FROM "{place.enqueuer}"')
    place.ask("GRANT EXECUTE ON FUNCTION pgqueue_result TO PUBLIC")
    place.ask("ALTER FUNCTION _pgqueue_wake SECURITY INVOKER")
    place.ask(f'REVOKE USAGE ON SEQUENCE pgqueue_job_id_seq FROM "{place.worker}"')
    (warning,) = database_problems(place.alias)
    assert warning.id == "pgqueue.W009"
    assert (
        "_pgqueue_wake runs with the rights of its caller, everybody may call pgqueue_result" in warning.msg
    )
    assert f"{place.worker} lacks rights to pgqueue_job_id_seq" in warning.msg
    assert warning.hint is not None
    assert warning.hint.endswith(f" --enqueuer {place.enqueuer} --worker {place.worker}")


def test_a_migrate_by_somebody_else_warns(
    place: Place, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    place.ask("ALTER FUNCTION _pgqueue_wake SECURITY INVOKER")
    options = in_schema("public", place.stranger)
    with alias("theirs", NAME=place.database, OPTIONS=options) as theirs, caplog.at_level(logging.WARNING):
        roles_module.after_migrate(using=theirs, plan=[])
    assert "_pgqueue_wake runs with the rights of its caller), and this user cannot" in caplog.text
    assert "must be owner" in caplog.text
