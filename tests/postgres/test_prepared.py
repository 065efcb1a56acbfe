"""Statements of a session: which are prepared, which are refused, and whose answer does not come in time."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import psycopg
import pytest

from django_pgqueue.postgres.session import (
    LOST_CONNECTION,
    Session,
    StalePreparedStatementError,
    connect,
)
from tests.support.databases import alias
from tests.support.poolers import pgbouncer
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


@pytest.mark.parametrize("lost", [b"DEALLOCATE ALL", b"DISCARD ALL"])
def test_a_session_that_somebody_has_reset_must_be_replaced(session: Session, lost: bytes) -> None:
    for _ in range(2):
        session.run(("SELECT 1", None))
    session.connection.pgconn.exec_(lost)
    with pytest.raises(LOST_CONNECTION, match=r'cannot be used anymore: prepared statement "\w+" does not'):
        session.run(("SELECT 1", None))


def test_a_session_whose_server_has_prepared_statements_of_another_must_be_replaced(
    session: Session,
) -> None:
    session.run(("SELECT 1", None))
    for number in range(3):
        session.connection.pgconn.exec_(b"PREPARE _pg3_%d AS SELECT 2" % number)
    with pytest.raises(StalePreparedStatementError, match="already exists"):
        session.run(("SELECT 1", None))


def test_a_session_whose_columns_have_changed_must_be_replaced(session: Session, connect: Connect) -> None:
    owner = connect(autocommit=True)
    owner.execute("CREATE TABLE changing (name varchar(10))")
    try:
        for _ in range(2):
            session.run(("SELECT name FROM changing", None))
        owner.execute("ALTER TABLE changing ALTER COLUMN name TYPE varchar(20)")
        with pytest.raises(StalePreparedStatementError, match="cached plan must not change result type"):
            session.run(("SELECT name FROM changing", None))
    finally:
        owner.execute("DROP TABLE changing")


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
