"""The roles of ``manage.py pgqueue roles`` in the database of the tests and their members."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import psycopg
import pytest
from django.core.management import call_command
from django.db import connections
from pytest_django import DjangoDbBlocker

from tests.support.databases import roles
from tests.support.sessions import Connection, open_raw

PASSWORD = "for-tests"


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


Login = Callable[[str], Connection]


@pytest.fixture
def login(transactional_db: None) -> Iterator[Login]:
    """Open connections as another role, which commit each statement."""
    with ExitStack() as stack:

        def as_role(role: str) -> Connection:
            parameters = dict(connections["default"].get_connection_params())
            for name in ("cursor_factory", "context", "autocommit"):
                parameters.pop(name, None)
            connection = psycopg.connect(
                **{**parameters, "user": role, "password": PASSWORD}, autocommit=True
            )
            stack.callback(connection.close)
            return connection

        yield as_role
