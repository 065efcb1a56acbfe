"""The roles of ``manage.py pgqueue roles`` in the database of the tests, their members, and a call of every
function of the queue that is not a trigger, with arguments that could do something.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import zip_longest

import psycopg
import pytest
from django.core.management import call_command
from django.db import connections
from pytest_django import DjangoDbBlocker

from tests.support.databases import roles
from tests.support.sessions import Connection, open_raw, parameters_of

PASSWORD = "for-tests"
#: Two calls as Python sends them, with options for each, and a context and a tenant for all.
MANY = """
    SELECT ids FROM _pgqueue_enqueue_many(
        1, ARRAY['a.b', 'a.c'], '{"[]","[]"}', '{"{}","{}"}', '{"{}","{}"}', ARRAY['default', 'default'],
        ARRAY[0, 0], '{NULL,NULL}', '{NULL,NULL}', '{NULL,NULL}', '{NULL,NULL}', '{NULL,NULL}',
        '{NULL,NULL}', NULL, %s::jsonb[], %s::jsonb, NULL, %s)
"""


class Roles:
    """The names of the roles, and of a login for each: two that may only enqueue, and a worker."""

    def __init__(self, names: list[str]) -> None:
        self.enqueuer, self.worker, self.web, self.shop, self.runner = names

    @property
    def arguments(self) -> list[str]:
        """The options of the command."""
        return ["--enqueuer", self.enqueuer, "--worker", self.worker]


@pytest.fixture(scope="package", autouse=True)
def _closed_schema(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> None:
    """Before PostgreSQL 15, everybody may create objects in the schema."""
    with django_db_blocker.unblock(), open_raw() as owner:
        owner.execute("REVOKE CREATE ON SCHEMA public FROM PUBLIC")


@pytest.fixture(scope="module")
def installed(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[Roles]:
    """Install the roles for the tests of a module."""
    with (
        django_db_blocker.unblock(),
        roles("enqueuer", "worker", "web", "shop", "runner") as names,
        open_raw() as owner,
    ):
        made = Roles(names)
        call_command("pgqueue", "roles", "--apply", *made.arguments)
        for login, group in (
            (made.web, made.enqueuer),
            (made.shop, made.enqueuer),
            (made.runner, made.worker),
        ):
            owner.execute(f"ALTER ROLE \"{login}\" LOGIN PASSWORD '{PASSWORD}'")
            owner.execute(f'GRANT "{group}" TO "{login}"')
        try:
            yield made
        finally:
            call_command("pgqueue", "roles", "--apply", "--drop", *made.arguments)
            connections["default"].close()


@contextmanager
def changed(owner: Connection, change: str, undo: str) -> Iterator[None]:
    """Change something in the database during the block."""
    owner.execute(change)
    try:
        yield
    finally:
        owner.execute(undo)


LATER_LEAF = (
    "CREATE TABLE pgqueue_job_later PARTITION OF pgqueue_job FOR VALUES IN (77)",
    "DROP TABLE pgqueue_job_later",
)

Login = Callable[[str], Connection]


@pytest.fixture
def login(transactional_db: None) -> Iterator[Login]:
    """Open connections as another role, which commit each statement."""
    with ExitStack() as stack:

        def as_role(role: str) -> Connection:
            given = {**parameters_of(), "user": role, "password": PASSWORD}
            connection = psycopg.connect(**given, autocommit=True)
            stack.callback(connection.close)
            return connection

        yield as_role


_FUNCTIONS = """
    SELECT proname, prokind = 'p', ARRAY(
        SELECT format_type(given.type, NULL) FROM unnest(proargtypes) WITH ORDINALITY AS given (type, place)
        ORDER BY given.place), coalesce(proargnames, '{}')
    FROM pg_proc WHERE proname ~ '^_?pgqueue_' AND prorettype <> 'trigger'::regtype ORDER BY proname
"""
_BY_TYPE = {
    "integer": "1", "smallint": "1", "text": "'live'", "jsonb": "'{}'", "boolean": "true",
    "double precision": "1", "interval": "'1 s'", "timestamp with time zone": "clock_timestamp()",
    "regclass": "'pgqueue_limit'",
}  # fmt: skip
_BY_NAME = {
    "task_path": "'a.b'", "args": "'[]'", "outcome": "'done'", "how": "'stop'", "kind": "'queue'",
    "on_full": "'wait'", "error": "'{}'", "errors": "'[]'", "logs": "'[]'", "unknown": "NULL",
    "expires_at": "NULL", "on_lost": "'fail'", "delay": "NULL", "options": "NULL", "run_after": "NULL",
    "until": "NULL", "condition": "'true'", "priorities": "1", "batch": "NULL", "context": "NULL",
    "no_concurrency": "false", "no_rate": "false",
}  # fmt: skip


def outcomes(connection: Connection, job: int) -> dict[str, str]:
    """Call every function about a job, and return what each has done: "ran", or the SQLSTATE of its error.

    Each call is rolled back. The function may be new: its arguments come from its signature.
    """
    found = {}
    for name, is_procedure, types, names in connection.execute(_FUNCTIONS).fetchall():
        values = [
            _value(kind, called, job)
            for kind, called in zip_longest(types, names[: len(types)], fillvalue="")
        ]
        verb = "CALL" if is_procedure else "SELECT * FROM"
        try:
            with connection.transaction(force_rollback=True):
                connection.execute(f"{verb} {name}({', '.join(values)})")
            found[name] = "ran"
        except psycopg.Error as error:
            found[name] = error.sqlstate or type(error).__name__
    return found


def _value(kind: str, name: str, job: int) -> str:
    element = kind.removesuffix("[]")
    value = _BY_NAME.get(name.removeprefix("p_").removesuffix("s")) or _BY_NAME.get(name.removeprefix("p_"))
    if value is None:
        value = {**_BY_TYPE, "bigint": str(job)}.get(element, "NULL")
    return f"{value}::{kind}" if element == kind else f"ARRAY[{value}]::{kind}"
