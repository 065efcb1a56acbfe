"""Both ends of the connections that tasks use notice when the other end has vanished."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import psycopg
import pytest
from django.db import connection, connections
from django.db.backends.signals import connection_created

from django_pgqueue.postgres.session import connect
from django_pgqueue.worker.executor import connections as connections_module
from django_pgqueue.worker.executor import fork
from tests.support.databases import alias
from tests.support.sessions import open_raw

pytestmark = pytest.mark.django_db(transaction=True)

SERVER = (
    "tcp_keepalives_idle", "tcp_keepalives_interval", "tcp_keepalives_count", "tcp_user_timeout",
    "client_connection_check_interval",
)  # fmt: skip
CLIENT = ("TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT", "TCP_USER_TIMEOUT")


@contextmanager
def prepared(name: str) -> Iterator[Any]:
    """Open the connection of an alias as a worker process does."""
    connections_module.watch_connections()
    before = {each: connections.settings[each].get("OPTIONS", {}) for each in connections}
    try:
        fork._set_options()
        connections[name].connect()
        yield connections[name].connection
    finally:
        connection_created.disconnect(dispatch_uid=connections_module.__name__)
        for each, options in before.items():
            connections.settings[each]["OPTIONS"] = options


def client_end(raw: Any) -> list[int]:
    with socket.socket(fileno=socket.dup(raw.fileno())) as ours:
        return [ours.getsockopt(socket.IPPROTO_TCP, getattr(socket, name)) for name in CLIENT]


def server_end(raw: Any) -> list[int]:
    rows = raw.execute("SELECT name, setting FROM pg_settings WHERE name = ANY (%s)", [list(SERVER)])
    found = dict(rows.fetchall())
    return [int(found[name]) for name in SERVER]


def test_the_connection_of_a_task() -> None:
    with alias("mine", opened=False) as name, prepared(name) as raw:
        assert client_end(raw) == [10, 5, 3, 30_000]
        assert server_end(raw) == [10, 5, 3, 30_000, 10_000]
        assert raw.info.transaction_status == psycopg.pq.TransactionStatus.IDLE


def test_a_shorter_lease_means_shorter_times(settings: Any) -> None:
    settings.PGQUEUE = {"LEASE": 8, "HEARTBEAT": 1}
    with alias("mine", opened=False) as name, prepared(name) as raw:
        assert client_end(raw) == [2, 1, 3, 8_000]
        assert server_end(raw) == [2, 1, 3, 8_000, 2_000]
        with closing(connect(name)) as worker:
            assert client_end(worker.connection) == [2, 1, 3, 4_000]
            assert server_end(worker.connection) == [2, 1, 3, 4_000, 2_000]


def test_a_longer_lease_lets_a_task_pause_for_a_minute(settings: Any) -> None:
    settings.PGQUEUE = {"LEASE": 3600}
    with alias("mine", opened=False) as name, prepared(name) as raw:
        assert client_end(raw) == [10, 5, 3, 60_000]


def test_what_is_configured_comes_first() -> None:
    options = {"keepalives_idle": 100, "options": "-c tcp_keepalives_count=7 -c tcp_user_timeout=0"}
    with alias("mine", opened=False, OPTIONS=options) as name, prepared(name) as raw:
        assert client_end(raw) == [100, 5, 3, 30_000]
        assert server_end(raw) == [10, 5, 7, 0, 10_000]


def test_settings_of_the_role_come_first() -> None:
    user = connection.settings_dict["USER"]
    database = connection.settings_dict["NAME"]
    with open_raw() as owner:
        try:
            owner.execute(f'ALTER ROLE "{user}" IN DATABASE "{database}" SET tcp_user_timeout = 70000')
            with alias("mine", opened=False) as name, prepared(name) as raw:
                assert server_end(raw) == [10, 5, 3, 70_000, 10_000]
        finally:
            owner.execute(f'ALTER ROLE "{user}" IN DATABASE "{database}" RESET tcp_user_timeout')


def test_without_autocommit_no_transaction_is_left_open() -> None:
    with alias("mine", opened=False, AUTOCOMMIT=False) as name, prepared(name) as raw:
        assert raw.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
        assert server_end(raw) == [10, 5, 3, 30_000, 10_000]


def test_a_server_that_refuses_it_can_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(raw: Any, **kwargs: Any) -> None:
        raw.execute("SELECT 1 / 0")

    monkeypatch.setattr(connections_module, "set_server_keepalive", refuse)
    with alias("mine", opened=False) as name, prepared(name) as raw:
        assert raw.execute("SELECT 1").fetchone() == (1,)
