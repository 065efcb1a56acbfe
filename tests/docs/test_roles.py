"""The page about database roles: its statements, by the logins that it makes."""

from __future__ import annotations

import re
from collections.abc import Iterator

import psycopg
import pytest
from django.core.management import call_command
from django.db import connections

from tests.support.jobs import value
from tests.support.sessions import Connect, Connection

from .shop import in_shop, statements

LOGINS = ("shop_web", "shop_worker")


@pytest.fixture
def owner(connect: Connect) -> Iterator[Connection]:
    """The connection of the owner, with the roles of the page."""
    owner = connect(autocommit=True)
    _drop(owner)
    owner.execute("REVOKE CREATE ON SCHEMA public FROM PUBLIC")  # the default from PostgreSQL 15 on
    call_command("pgqueue", "roles", "--apply")
    try:
        yield owner
    finally:
        _drop(owner)


@in_shop
def test_the_logins_of_the_page(owner: Connection) -> None:
    owner.execute(statements("roles"))
    passwords = dict(re.findall(r"ROLE (\w+) LOGIN PASSWORD '([\w-]+)'", statements("roles")))
    enqueue, result = statements("result").split(";\n")[:2]
    with _login("shop_web", passwords) as web:
        job = value(web, enqueue)
        row = web.execute(re.sub(r"\b1\b", str(job), result)).fetchone()
        assert row == ("pending", False, None, None)
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            web.execute("SELECT args FROM pgqueue_job")
    with _login("shop_worker", passwords) as worker:
        assert value(worker, "SELECT args FROM pgqueue_job WHERE id = %s", job) == [5]
        assert value(worker, "SELECT count(*) FROM shop_order") == 0
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            worker.execute("TRUNCATE shop_order")


def _login(name: str, passwords: dict[str, str]) -> Connection:
    parameters = dict(connections["default"].get_connection_params())
    for other in ("cursor_factory", "context", "autocommit"):
        parameters.pop(other, None)
    return psycopg.connect(**{**parameters, "user": name, "password": passwords[name]}, autocommit=True)


def _drop(owner: Connection) -> None:
    for name in LOGINS:
        if value(owner, "SELECT count(*) FROM pg_roles WHERE rolname = %s", name):
            owner.execute(f"DROP OWNED BY {name}; DROP ROLE {name}")
    call_command("pgqueue", "roles", "--apply", "--drop")
