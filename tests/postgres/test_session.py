"""How the worker's own connection is set up, directly and behind a pooler; what new processes are told of."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.core.exceptions import ImproperlyConfigured
from django.db import connections

from django_pgqueue.jobs.finish import Outcome
from django_pgqueue.models import Worker
from django_pgqueue.postgres import aliases
from django_pgqueue.postgres.liveness import BoundedConnection
from django_pgqueue.postgres.session import Session, connect
from django_pgqueue.worker.executor.errors import error_entry
from django_pgqueue.worker.producer import connection as producer_connection
from django_pgqueue.worker.producer.reporter import refused
from tests.support.databases import alias, fresh_database, roles
from tests.support.poolers import Pooler, pgbouncer
from tests.support.sessions import Connection
from tests.support.workers import make_producer

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def pooler() -> Iterator[Pooler]:
    with pgbouncer() as pooler:
        yield pooler


@contextmanager
def opened(**changes: Any) -> Iterator[Session]:
    """A session with these settings of the database."""
    with alias("changed", opened=False, **changes) as name, closing(connect(name)) as session:
        yield session


def tcp_options(session: Session) -> tuple[int, ...]:
    """Seconds until the first probe, between probes, their number; milliseconds that sent data may wait."""
    names = ("TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT", "TCP_USER_TIMEOUT")
    with socket.socket(fileno=socket.dup(session.connection.fileno())) as ours:
        assert ours.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        return tuple(ours.getsockopt(socket.IPPROTO_TCP, getattr(socket, name)) for name in names)


def servers_options(session: Session) -> list[str]:
    names = ("idle", "interval", "count")
    rows = session.run(
        *((f"SHOW tcp_keepalives_{name}", None) for name in names), ("SHOW tcp_user_timeout", None)
    )
    return [row[0] for (row,) in rows]


@pytest.mark.promise("vanished-peer")
def test_both_ends_find_out_within_half_a_minute_that_the_other_has_vanished() -> None:
    with closing(connect("default")) as session:
        assert tcp_options(session) == (10, 5, 3, 10_000)
        assert servers_options(session) == ["10", "5", "3", "10000"]


def test_a_session_has_the_name_of_its_purpose() -> None:
    with closing(connect("default")) as one, closing(connect("default", name="pgqueue join")) as other:
        names = [each.connection.info.get_parameters()["application_name"] for each in (one, other)]
        assert names == ["pgqueue worker", "pgqueue join"]


def test_options_of_the_database_come_first() -> None:
    options = {
        "keepalives_idle": 100, "tcp_user_timeout": 0, "connect_timeout": 3, "application_name": "mine",
        "options": "-c tcp_keepalives_count=7",
    }  # fmt: skip
    with alias("mine", OPTIONS=options) as name, closing(connect(name)) as session:
        assert tcp_options(session) == (100, 5, 3, 0)
        assert servers_options(session) == ["10", "5", "7", "10000"]
        parameters = session.connection.info.get_parameters()
        assert (parameters["connect_timeout"], parameters["application_name"]) == ("3", "mine")


def test_an_old_libpq_is_not_told_what_it_does_not_know(monkeypatch: pytest.MonkeyPatch) -> None:
    known = [option for option in psycopg.pq.Conninfo.get_defaults() if option.keyword != b"tcp_user_timeout"]
    monkeypatch.setattr(psycopg.pq.Conninfo, "get_defaults", lambda: known)
    with closing(connect("default")) as session:
        assert tcp_options(session) == (10, 5, 3, 0)


@pytest.mark.promise("own-timeouts")
def test_timeouts_of_the_role_do_not_apply_to_workers() -> None:
    theirs = {
        "statement_timeout": "50", "lock_timeout": "50", "idle_session_timeout": "50",
        "idle_in_transaction_session_timeout": "50",
    }  # fmt: skip
    options = " ".join(f"-c {name}={milliseconds}" for name, milliseconds in theirs.items())
    with alias("impatient", OPTIONS={"options": options}) as name, closing(connect(name)) as session:
        rows = session.run(*((f"SHOW {timeout}", None) for timeout in theirs))
        assert [row[0] for (row,) in rows] == ["1min", "2s", "0", "2min"]


def test_a_unix_socket(pooler: Pooler) -> None:
    with opened(**pooler.socket_address()) as session:
        assert session.connection.info.get_parameters()["host"] == pooler.socket_address()["HOST"]
        assert session.run(("SELECT 1", None)) == [[(1,)]]


def test_a_session_that_cannot_be_set_up_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Connection] = []
    open_one = BoundedConnection.connect

    def remember(**parameters: Any) -> Connection:
        made.append(open_one(**parameters))
        return made[-1]

    monkeypatch.setattr(BoundedConnection, "connect", remember)
    settings = {"assume_role": "nobody_has_this_role"}
    with pytest.raises(psycopg.Error, match="nobody_has"), opened(OPTIONS=settings):
        pass
    assert [one.closed for one in made] == [True]


def test_a_role_is_assumed() -> None:
    with roles("worker") as (role,), opened(OPTIONS={"assume_role": role}) as session:
        assert session.run(("SELECT current_user::text", None)) == [[(role,)]]


def test_behind_a_pooler_a_role_is_assumed_in_each_transaction(pooler: Pooler) -> None:
    with roles("worker") as (role,), opened(OPTIONS={"assume_role": role}, **pooler.address()) as session:
        assert session.pooled
        assert session.run(("SELECT current_user::text", None)) == [[(role,)]]
        with pooler.connect() as other:  # in the same session of the server
            left = other.execute("SELECT current_user::text, current_setting('statement_timeout')").fetchone()
        assert left == (connections["default"].settings_dict["USER"], "0")


def test_behind_a_pooler_a_transaction_is_one_message(pooler: Pooler, tmp_path: Path) -> None:
    """After a message that ends with a Flush, pgbouncer may keep the server's connection for this client."""
    with opened(**pooler.address()) as session, (tmp_path / "messages").open("w+") as messages:
        session.connection.pgconn.trace(messages.fileno())
        answers = session.run(
            ("SELECT %(list)s::text[], %(odd)s", {"list": ["a", "%s;'"], "odd": None}),
            ("SELECT count(*) FROM (VALUES (1), (2)) AS two WHERE %s", (True,)),
            durable=True,
        )
        session.connection.pgconn.untrace()
        messages.seek(0)
        sent = [line.split("\t")[3] for line in messages if line.split("\t")[1] == "F"]
    assert answers == [[(["a", "%s;'"], None)], [(2,)]]
    assert sent == ["Query"]


def test_that_it_polls_is_said_once_in_a_process(pooler: Pooler, caplog: pytest.LogCaptureFixture) -> None:
    producer_connection._say_that_it_polls.cache_clear()
    with alias("pooled", opened=False, **pooler.address()) as name:
        for _ in range(3):
            producer = make_producer(alias=name)
            producer._connection.open()
            producer._connection.live.close()
            producer._waker.close()
    assert caplog.text.count("is behind a transaction pooler") == 1
    assert not Worker.objects.filter(holds_lock=True).exists()


@pytest.mark.parametrize(
    ("encoding", "stored"),
    [("LATIN1", "price: 5 ?, \u00fcber"), ("LATIN9", "price: 5 \u20ac, \u00fcber"),
     ("WIN1251", "price: 5 \u20ac, ?ber"),
     ("KOI8R", "price: 5 ?, ?ber"), ("EUC_TW", "price: 5 ?, ?ber")],
)  # fmt: skip
def test_characters_that_the_server_cannot_hold_are_replaced(encoding: str, stored: str) -> None:
    text = "price: 5 \u20ac, \u00fcber"
    entry = error_entry(ValueError(text), 1, 1)
    with (
        fresh_database(f"ENCODING '{encoding}' LOCALE 'C' TEMPLATE template0") as name,
        alias("encoded", NAME=name) as encoded,
        closing(connect(encoded)) as session,
    ):
        assert session.value("SELECT %s::text", (text,)) == stored
        assert session.value("SELECT %s::text[]", ([text],)) == [stored]
        assert session.value("SELECT %s::jsonb ->> 'message'", (entry,)) == stored


def test_a_job_whose_outcome_has_a_strange_character_ends_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also behind a pooler, and also the failure that is reported in place of a refused outcome."""
    refusal = refused(Outcome(1, 1, "done"), ValueError("\u20ac \ud800"))
    with (
        fresh_database("ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0") as name,
        alias("encoded", NAME=name) as encoded,
        closing(connect(encoded)) as session,
    ):
        assert session.value("SELECT %s::jsonb ->> 'message'", (refusal.error,)) == "? ?"
        monkeypatch.setattr(session, "pooled", True)
        assert session.value("SELECT %s::jsonb ->> 'message'", (refusal.error,)) == "? ?"


# -- new processes receive the connection parameters that were changed, and no others

ENGINE = "django.db.backends.postgresql"


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """DATABASES as they were at the start and as they are now. A test may change them."""
    databases: dict[str, Any] = {
        "default": {
            "ENGINE": ENGINE,
            "NAME": "shop",
            "OPTIONS": {"context": object(), "pool": {"max_size": 4}},
        },
        "other": {"ENGINE": ENGINE, "NAME": "other", "PASSWORD": "secret"},
    }
    monkeypatch.setattr(aliases, "_remembered", aliases._copy(databases))
    monkeypatch.setattr(connections, "settings", connections.configure_settings(databases))
    for connection in connections.all(initialized_only=True):
        connection.close()  # left open by an earlier test; it would be closed as the new settings say
        monkeypatch.setattr(connection, "settings_dict", databases[connection.alias])
    return databases


def test_what_differs_and_an_added_alias_are_sent(given: dict[str, Any]) -> None:
    assert aliases.changed() == ""
    given["default"]["NAME"] = "test_shop_1"
    aliases.remember()  # only the first ready counts
    given["other"].update(NAME=Path("/var/x"), TEST={"NAME": object()})
    given["tenant"] = {"ENGINE": ENGINE, "NAME": "tenant", "PASSWORD": "secret", "TEST": {}}
    assert json.loads(aliases.changed()) == {
        "default": {"NAME": "test_shop_1"},
        "other": {"NAME": "/var/x"},
        "tenant": {"ENGINE": ENGINE, "NAME": "tenant", "PASSWORD": "secret"},
    }


def test_what_json_does_not_have_is_refused_without_its_value(given: dict[str, Any]) -> None:
    given["default"]["OPTIONS"]["pool"]["max_size"] = 5
    with pytest.raises(
        ImproperlyConfigured, match=r"DATABASES\['default'\]\['OPTIONS'\] was changed"
    ) as raised:
        aliases.changed()
    assert "max_size" not in str(raised.value)


def test_what_was_sent_is_used(given: dict[str, Any]) -> None:
    aliases.apply(
        json.dumps({"default": {"NAME": "test_shop"}, "tenant": {"ENGINE": ENGINE, "NAME": "tenant"}})
    )
    assert given["default"]["NAME"] == aliases.database_name("default") == "test_shop"
    assert given["other"]["NAME"] == "other"
    assert connections.settings["tenant"]["NAME"] == "tenant"
