"""An answer that does not come in time: its connection is lost, and a worker replaces it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing

import psycopg
import pytest
from django.db import connections
from django.db.backends.signals import connection_created

from django_pgqueue.postgres import liveness, session as session_module
from django_pgqueue.postgres.liveness import SilentServerError
from django_pgqueue.postgres.session import (
    STATEMENT_TIMEOUT,
    Session,
    connect,
)
from django_pgqueue.worker.executor import connections as connections_module
from django_pgqueue.worker.executor.connections import watch_connections
from tests.support.databases import alias
from tests.support.proxies import Proxy, proxy

pytestmark = pytest.mark.django_db(transaction=True)

SOON = 0.3


@pytest.fixture
def between(monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    """A proxy that everybody reaches the server through, with a short deadline."""
    monkeypatch.setattr(liveness, "DEADLINE", SOON)
    settings = connections["default"].settings_dict
    with proxy(settings["HOST"], int(settings["PORT"])) as made:
        yield made


@pytest.fixture
def worker(between: Proxy) -> Iterator[Session]:
    """A session through the proxy."""
    address = {"HOST": "127.0.0.1", "PORT": between.port}
    with alias("proxied", opened=False, **address) as name, closing(connect(name)) as opened:
        yield opened


def test_the_server_cancels_a_statement_before_the_deadline() -> None:
    assert 1000 * liveness.DEADLINE > STATEMENT_TIMEOUT


@pytest.mark.parametrize("statements", [1, 2])
@pytest.mark.parametrize("is_prepared", [False, True])
@pytest.mark.promise("forgotten-connection")
def test_a_connection_that_a_proxy_has_forgotten(
    between: Proxy, worker: Session, statements: int, is_prepared: bool
) -> None:
    for _ in range(3 * is_prepared):
        worker.run(*[("SELECT 1", None)] * statements)
    (link,) = between.forget(b"pgqueue worker")
    began = time.monotonic()
    with pytest.raises(SilentServerError, match="the connection was lost unnoticed"):
        worker.run(*[("SELECT 1", None)] * statements)
    assert time.monotonic() - began < 6.0
    assert worker.connection.closed
    assert link.is_forgotten


def test_an_answer_that_is_read_while_something_else_is_done(between: Proxy, worker: Session) -> None:
    between.forget()
    with pytest.raises(SilentServerError):
        worker.run_beside(lambda: None, ("SELECT 1", None))
    assert worker.connection.closed


def test_a_connection_that_is_forgotten_while_it_is_set_up(
    between: Proxy, worker: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forget(encoding: object) -> None:
        between.forget()

    monkeypatch.setattr(session_module, "_storable_dumper", forget)
    with pytest.raises(SilentServerError):
        connect("proxied")


def test_whoever_waits_for_notifications_waits_for_no_answer(worker: Session) -> None:
    worker.connection.execute("LISTEN somebody")
    assert list(worker.connection.notifies(timeout=4 * SOON)) == []
    assert not worker.connection.closed


def test_a_connection_between_two_statements_has_no_deadline(worker: Session) -> None:
    assert worker.value("SELECT 1") == 1
    time.sleep(2 * SOON)
    assert worker.value("SELECT 1") == 1


def test_a_task_waits_for_a_query_that_takes_long(between: Proxy) -> None:
    watch_connections()
    address = {"HOST": "127.0.0.1", "PORT": between.port}
    try:
        with alias("proxied", opened=False, **address) as name:
            connections[name].connect()
            with connections[name].cursor() as cursor:
                cursor.execute("SELECT 'done' FROM pg_sleep(%s)", [4 * SOON])
                assert cursor.fetchone() == ("done",)
    finally:
        connection_created.disconnect(dispatch_uid=connections_module.__name__)


def test_other_errors_are_those_of_the_server(worker: Session) -> None:
    with pytest.raises(psycopg.errors.DivisionByZero):
        worker.rows("SELECT 1 / 0")
    assert worker.value("SELECT 1") == 1
