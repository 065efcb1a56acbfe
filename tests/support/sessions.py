"""More connections, and statements that are known to wait for a lock, so that tests can force interleavings.

Nothing here relies on sleeping: `Background.blocked` asks the server whether the statement waits, until a
deadline.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from typing import Any, Generic, TypeVar

import psycopg
import pytest
from django.db import connections
from pytest_django import DjangoDbBlocker

from django_pgqueue.postgres.session import Session, connect as connect_session

from .waiting import DEADLINE, until

#: If a statement waits for a lock that it should not wait for, its test fails instead of hanging.
LOCK_TIMEOUT = "15s"

#: The address of the server if everybody else goes through a pooler (``everything_pooled``).
DIRECT: dict[str, Any] = {}

_WAITING = """
    SELECT FROM pg_stat_activity
    WHERE datname = current_database() AND pid = coalesce(%(pid)s, pid)
        AND cardinality(pg_blocking_pids(pid)) > 0
"""

Connection = psycopg.Connection[Any]
T = TypeVar("T")


#: The type of the fixture `connect`, which opens a separate connection to the database of an alias.
Connect = Callable[..., Connection]


@pytest.fixture
def session(transactional_db: None) -> Iterator[Session]:
    """A session as workers and supervisors open it."""
    with closing(connect_session("default")) as session:
        yield session


@pytest.fixture
def connect(transactional_db: None) -> Iterator[Connect]:
    """Open connections in addition to Django's. They are closed, and so rolled back, before tables are
    flushed.
    """
    with ExitStack() as stack:

        def open_one(alias: str = "default", *, autocommit: bool = False, options: str = "") -> Connection:
            connection = open_raw(alias, autocommit=autocommit, options=options)
            stack.callback(connection.close)
            return connection

        yield open_one


_AS_NEW = (
    "CLOSE ALL", "UNLISTEN *", "RESET SESSION AUTHORIZATION", "RESET ALL", "SELECT pg_advisory_unlock_all()",
    "DISCARD TEMP", "DISCARD SEQUENCES",
)  # fmt: skip


class Sessions:
    """Sessions that are lent to one test of a module after another.

    In a new session, the server first compiles the functions of the queue, for longer than most tests take.
    """

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._idle: list[Connection] = []

    @contextmanager
    def lend(self, *, autocommit: bool) -> Iterator[Connection]:
        """Yield a session in which nothing is left of another test. One that broke is not lent again."""
        session = self._idle.pop() if self._idle else self._stack.enter_context(open_raw())
        session.autocommit = autocommit
        try:
            yield session
        finally:
            try:
                session.rollback()
                session.autocommit = True
                for statement in _AS_NEW:
                    session.execute(statement)
                self._idle.append(session)
            except psycopg.Error:  # the test has closed it, or let the server end it
                session.close()


@pytest.fixture(scope="module")
def sessions(django_db_setup: None) -> Iterator[Sessions]:
    """The sessions of the tests of a module."""
    with ExitStack() as stack:
        yield Sessions(stack)


@pytest.fixture
def one(request: pytest.FixtureRequest) -> Iterator[Connection]:
    """The connection of the test itself, whose statements are rolled back; or, in a test with
    ``transaction=True``, another one that commits each of them.
    """
    mark = request.node.get_closest_marker("django_db")
    if mark is not None and mark.kwargs.get("transaction"):
        request.getfixturevalue("transactional_db")
        with request.getfixturevalue("sessions").lend(autocommit=True) as other:
            yield other
        return
    request.getfixturevalue("db")
    connections["default"].ensure_connection()
    own: Connection = connections["default"].connection
    yield own


@pytest.fixture(scope="session")
def settled_server(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> None:
    """Wait until the server has been up for some seconds.

    A free lock proves nothing about a worker whose last heartbeat is older than the server's start. Tests
    with heartbeats that are some seconds old may run first, when the server has only just started.
    """
    is_settled = (
        "SELECT clock_timestamp() - interval '3 s'"
        " > greatest(pg_postmaster_start_time(), (SELECT stats_reset FROM pg_stat_bgwriter))"
    )
    with django_db_blocker.unblock(), open_raw() as connection:
        until(lambda: connection.execute(is_settled).fetchone() == (True,), what="a settled server")


def parameters_of(alias: str = "default") -> dict[str, Any]:
    """Return Django's parameters for psycopg, without what makes a connection one of Django."""
    found = connections[alias].get_connection_params()
    return {name: found[name] for name in found if name not in ("cursor_factory", "context", "autocommit")}


def open_raw(alias: str = "default", *, autocommit: bool = True, options: str = "") -> Connection:
    """Open a psycopg connection with Django's parameters, but without its adapters and time zone.

    It never goes through a pooler: it holds locks, and tells its process from others.
    """
    parameters = {**parameters_of(alias), **DIRECT}
    parameters["options"] = (
        f"{parameters.get('options', '')} -c lock_timeout={LOCK_TIMEOUT} {options}".strip()
    )
    return psycopg.connect(**parameters, autocommit=autocommit)


class Background(Generic[T]):
    """A call in a separate thread, which uses one connection and may have to wait for a lock.

    If the connection goes through a pooler, it is not known which session is its own. Then any one that waits
    counts.
    """

    def __init__(self, connection: Connection, call: Callable[[], T]) -> None:
        is_pooled = bool(DIRECT) and connection.info.port != int(DIRECT["port"])
        self._pid = None if is_pooled else connection.info.backend_pid
        self._future = ThreadPoolExecutor(1).submit(call)

    def blocked(self) -> Background[T]:
        """Return when the call waits for a lock. Raise an error if it ends without waiting."""
        with open_raw() as observer:

            def waits() -> bool:
                found = observer.execute(_WAITING, {"pid": self._pid}).fetchone() is not None
                assert found or not self.is_finished, f"it did not wait, but returned {self.result()!r}"
                return found

            until(waits, what="the call waits for a lock")
        return self

    @property
    def is_finished(self) -> bool:
        """Whether the call has ended."""
        return self._future.done()

    def result(self) -> T:
        """Return the result of the call, or raise its exception."""
        return self._future.result(DEADLINE)


def start(connection: Connection, call: Callable[..., T], *args: Any, **kwargs: Any) -> Background[T]:
    """Run ``call(connection, ...)`` in the background."""
    return Background(connection, lambda: call(connection, *args, **kwargs))


def behind(
    one: Connection, other: Connection, call: Callable[..., T], *args: Any, end: str = "commit", **kwargs: Any
) -> T:
    """Let ``call(other, ...)`` wait for the transaction of `one`, end that, and return the result."""
    waiting = start(other, call, *args, **kwargs).blocked()
    getattr(one, end)()
    return waiting.result()


def who_waits_for(holder: Connection, observer: Connection) -> int | None:
    """Return the process of a session that waits for a lock of the holder, if there is one."""
    waits = "SELECT pid FROM pg_stat_activity WHERE %s = ANY (pg_blocking_pids(pid))"
    row = observer.execute(waits, (holder.info.backend_pid,)).fetchone()
    return None if row is None else int(row[0])
