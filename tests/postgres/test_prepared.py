"""Statements of a session: which are prepared, which are refused, and whose answer does not come in time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import psycopg
import pytest
from django.db import connections
from django.db.backends.signals import connection_created

from django_pgqueue.postgres import liveness, session as session_module
from django_pgqueue.postgres.liveness import SilentServerError
from django_pgqueue.postgres.session import (
    LOST_CONNECTION,
    STATEMENT_TIMEOUT,
    Session,
    StalePreparedStatementError,
    connect,
)
from django_pgqueue.worker.executor import connections as connections_module
from django_pgqueue.worker.executor.connections import watch_connections
from tests.support.databases import alias
from tests.support.poolers import Proxy, pgbouncer, proxy
from tests.support.sessions import Connect
from tests.support.waiting import until

pytestmark = pytest.mark.django_db(transaction=True)

RECIPROCAL = "SELECT 1 / %s"


def prepared(session: Session) -> list[tuple[str, int, int]]:
    """Return the prepared statements, with how often generic plans and custom plans of each were used."""
    query = "SELECT statement, generic_plans, custom_plans FROM pg_prepared_statements ORDER BY prepare_time"
    return session.connection.execute(query).fetchall()


def test_a_statement_is_prepared_when_it_runs_again(session: Session) -> None:
    assert session.value("SELECT %s + 1", (1,)) == 2
    assert prepared(session) == []
    for number in (2, 3):
        assert session.value("SELECT %s + 1", (number,)) == number + 1
    assert session.run(("SELECT %s + 1", (4,)), ("SELECT 'new'", None)) == [[(5,)], [("new",)]]
    assert prepared(session) == [("SELECT $1 + 1", 2, 0)]


def test_lists_of_any_length_and_size_are_one_prepared_statement(session: Session) -> None:
    lists: list[list[Any]] = [[], [1], [40_000], [2**40], [None], [1, None, 2**40]]
    for given in [*lists, *lists]:
        assert session.value("SELECT %s::bigint[]", (given,)) == given
    assert [uses for _, *uses in prepared(session)] == [[11, 0]]


def test_a_statement_that_fails_again_and_again_leaves_nothing_on_the_server(session: Session) -> None:
    session.run((RECIPROCAL, (1,)))
    for _ in range(5):
        with pytest.raises(psycopg.errors.DivisionByZero):
            session.run((RECIPROCAL, (0,)))
    assert len(prepared(session)) == 1
    for number in (1, 1, -1):
        assert session.value(RECIPROCAL, (number,)) == number
    assert len(prepared(session)) == 2


def test_a_statement_behind_one_that_fails_can_run_again(session: Session) -> None:
    """The server skips its preparation."""
    session.run((RECIPROCAL, (1,)), ("SELECT 'behind'", None))
    with pytest.raises(psycopg.errors.DivisionByZero):
        session.run((RECIPROCAL, (0,)), ("SELECT 'behind'", None))
    for _ in range(3):
        assert session.value("SELECT 'behind'") == "behind"


def test_work_is_done_beside_statements_and_their_commit(session: Session, connect: Connect) -> None:
    """The transaction is over when the work ends, although nobody has read an answer."""
    other = connect(autocommit=True)
    other.execute("CREATE TABLE written (number integer)")
    seen: list[int] = []

    def look() -> None:
        count = "SELECT count(*) FROM written"
        until(lambda: other.execute(count).fetchone() == (number,), what="the commit")
        seen.append(number)

    try:
        for number in (1, 2):  # the second time, the statements are prepared
            insert = ("INSERT INTO written VALUES (%s) RETURNING number", (number,))
            cursors = session.run_beside(look, insert, ("SELECT %s + 1", (number,)), durable=True)
            assert [cursor.fetchall() for cursor in cursors] == [[(number,)], [(number + 1,)]]
    finally:
        other.execute("DROP TABLE written")
    assert seen == [1, 2]


@pytest.mark.parametrize("times", [0, 2])
def test_work_is_done_once_beside_statements_that_fail(session: Session, times: int) -> None:
    for _ in range(times):
        session.run_beside(lambda: None, (RECIPROCAL, (1,)))
    done: list[bool] = []
    with pytest.raises(psycopg.errors.DivisionByZero):
        session.run_beside(lambda: done.append(True), (RECIPROCAL, (0,)), durable=True)
    assert len(done) <= 1  # the error may arrive before everything is sent
    assert session.connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
    assert session.value(RECIPROCAL, (1,)) == 1
    (cursor,) = session.run_beside(lambda: None, (RECIPROCAL, (-1,)))
    assert cursor.fetchall() == [(-1,)]


def test_nothing_is_prepared_behind_a_pooler() -> None:
    with pgbouncer() as pooler, alias("pooled", opened=False, **pooler.address()) as name:
        for _ in range(2):
            with closing(connect(name)) as session:
                for _ in range(3):
                    assert session.run(("SELECT %s::text[]", (["a"],)), ("SELECT 2", None))
                session.refresh_plans()
                assert prepared(session) == []


IS_GONE = r'cannot be used anymore: prepared statement "\w+" does not'


@pytest.mark.parametrize(
    ("times", "harm", "said"),
    [
        (2, [b"DEALLOCATE ALL"], IS_GONE),
        (2, [b"DISCARD ALL"], IS_GONE),
        (1, [b"PREPARE _pg3_%d AS SELECT 2" % number for number in range(3)], "already exists"),
    ],
    ids=["deallocated", "reset", "used by another"],
)
def test_a_session_with_other_prepared_statements_must_be_replaced(
    session: Session, times: int, harm: list[bytes], said: str
) -> None:
    for _ in range(times):
        session.run(("SELECT 1", None))
    for statement in harm:
        session.connection.pgconn.exec_(statement)
    with pytest.raises(StalePreparedStatementError, match=said):
        session.run(("SELECT 1", None))


def test_the_own_error_of_a_statement_replaces_a_session_only_once(session: Session) -> None:
    """The server has the same code for "cached plan must not change result type" and for its own limits."""
    session.connection.execute(
        "CREATE FUNCTION pg_temp.refuse(refuses boolean) RETURNS integer LANGUAGE plpgsql AS $$ BEGIN"
        " IF refuses THEN RAISE feature_not_supported; END IF; RETURN 1; END $$"
    )
    query = "SELECT pg_temp.refuse(%s)"
    for _ in range(2):
        session.run((query, (False,)))
    with pytest.raises(StalePreparedStatementError):
        session.run((query, (True,)))
    for _ in range(3):  # as in a new session
        with pytest.raises(psycopg.errors.FeatureNotSupported):
            session.run((query, (True,)))


# --- An answer that does not come in time: its connection is lost, and a worker replaces it


SOON = 0.3
SYNC = b"S\0\0\0\4"  # the message that ends what a client sends, before it waits


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


def test_race_a_session_ends_while_a_statement_is_prepared(
    between: Proxy, worker: Session, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server has prepared it and reads on. psycopg expects one answer (before 3.3.3), and gets two."""
    monkeypatch.setattr(liveness, "DEADLINE", 60.0)
    other, pid = connect(autocommit=True), worker.connection.info.backend_pid
    waits = "SELECT FROM pg_stat_activity WHERE pid = %s AND state = 'active' AND wait_event = 'ClientRead'"
    worker.value("SELECT 1")
    between.withheld = SYNC
    with ThreadPoolExecutor() as pool:
        answer = pool.submit(worker.value, "SELECT 1")
        until(lambda: other.execute(waits, (pid,)).fetchone() is not None)
        other.execute("SELECT pg_terminate_backend(%s)", (pid,))
        with pytest.raises(LOST_CONNECTION):
            answer.result()


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
