"""Detect without a round trip whether a job left something in the session of a Django connection.

A connection that stays open from job to job (``CONN_MAX_AGE``, or a pool) would pass on changes that a job
has made to its session. So each connection of a worker process has a watch, which sees

- the text of every statement that goes through Django (``session_state``),
- the settings that the server reports by itself (time zone, dates, role of the session, and the search path
  from PostgreSQL 18 on), whoever has changed them,
- the attributes of psycopg's own connection: isolation level, autocommit, row factory ...

and whether the socket has something to read although nothing was asked, which means that the server closes
the connection.

It does not see other state that a function in the database leaves in the session, or a task that uses psycopg
directly: temporary tables, advisory locks, unreported settings.
"""

from __future__ import annotations

import select
from time import monotonic
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from django.db.backends.signals import connection_created

from .session_state import leaves_state

if TYPE_CHECKING:
    from collections.abc import Callable

    from django.db.backends.base.base import BaseDatabaseWrapper

__all__ = ["OPENED", "SessionWatch", "install", "uninstall", "watch_of"]

#: All psycopg connections that Django has opened in this process and that still exist.
OPENED: WeakSet[Any] = WeakSet()
#: Those in which a job left something. A pool may contain some, because a task may have given them back.
_LEFT: WeakSet[Any] = WeakSet()

_REPORTED = (
    b"TimeZone", b"DateStyle", b"IntervalStyle", b"client_encoding", b"search_path",
    b"default_transaction_read_only", b"session_authorization",
)  # fmt: skip
_MOST_REPLACED = 1_000  # unusable connections of a pool, one after another


class SessionWatch:
    """An execute wrapper of one Django connection, which may use several sessions one after another."""

    def __init__(self) -> None:
        self.replacing = False
        self._used = False
        self._used_at = 0.0
        self._raw: Any = None
        self._at_first: tuple[Any, ...] = ()
        self._poll: Callable[[int], list[Any]] = lambda timeout: []

    def __call__(
        self, execute: Callable[..., Any], sql: Any, params: Any, many: bool, context: dict[str, Any]
    ) -> Any:
        """Note whether a statement leaves state. Django calls this for each statement."""
        self._used = True
        if leaves_state(sql if type(sql) is str else _as_text(sql)):
            _LEFT.add(context["connection"].connection)
        return execute(sql, params, many, context)

    def begin(self, raw: Any) -> None:
        """Remember the state of a new session."""
        OPENED.add(raw)
        self._used = True
        self._raw = raw
        self._at_first = _looks(raw)
        poll = select.poll()
        poll.register(raw.fileno(), select.POLLIN)
        self._poll = poll.poll

    def is_quiet(self, raw: Any) -> bool:
        """Return False if the server has sent something unasked, as it does when it closes the connection.

        (A server that reloads its configuration may send something, too. That costs a new connection.)
        """
        return raw is not self._raw or not self._poll(0)

    def unused_for(self) -> float:
        """Return the seconds since the last call that found the session used; 0 if it was used since then."""
        now = monotonic()
        if self._used:
            self._used = False
            self._used_at = now
        return now - self._used_at

    def is_clean(self, raw: Any) -> bool:
        """Return whether the session is in the same state as when it began."""
        return raw is self._raw and raw not in _LEFT and _looks(raw) == self._at_first


def install() -> None:
    """Watch every connection that Django opens from now on in this process."""
    connection_created.connect(_connected, dispatch_uid=__name__)


def uninstall() -> None:
    """Watch no more connections."""
    connection_created.disconnect(dispatch_uid=__name__)


def watch_of(connection: BaseDatabaseWrapper) -> SessionWatch | None:
    """Return the watch of a connection; None if it has none."""
    for wrapper in connection.execute_wrappers:
        if isinstance(wrapper, SessionWatch):
            return wrapper
    return None


def _connected(connection: BaseDatabaseWrapper, **kwargs: Any) -> None:
    raw: Any = connection.connection
    if getattr(raw, "pgconn", None) is None:
        return  # a database other than PostgreSQL
    watch = watch_of(connection)
    if watch is None:
        watch = SessionWatch()
        # The first, not the last: execute_wrapper() removes the last one when a task leaves it.
        connection.execute_wrappers.insert(0, watch)
    if watch.replacing:
        return
    _LEFT.discard(raw) if getattr(raw, "_pool", None) is None else _replace_unusable(connection, watch)
    watch.begin(connection.connection)
    _be_last()


def _replace_unusable(connection: BaseDatabaseWrapper, watch: SessionWatch) -> None:
    """Replace a session of a pool that has died in it, or in which a task left something."""
    watch.replacing = True
    try:
        for _ in range(_MOST_REPLACED):
            raw: Any = connection.connection
            if raw not in _LEFT and not select.select([raw.fileno()], [], [], 0)[0]:
                break
            raw.close()  # the pool discards closed connections
            connection.close()
            connection.connect()
    finally:
        watch.replacing = False


def _be_last() -> None:
    """Run after the project's own receivers, because their changes belong to the session's initial state."""
    receivers = connection_created.receivers or []
    if receivers and receivers[-1][0][0] != __name__:
        uninstall()
        install()


def _looks(raw: Any) -> tuple[Any, ...]:
    status = raw.pgconn.parameter_status
    return (
        raw.autocommit, raw.isolation_level, raw.read_only, raw.deferrable,
        raw.row_factory, raw.cursor_factory, raw.prepare_threshold,
        *[status(name) for name in _REPORTED],
    )  # fmt: skip


def _as_text(sql: Any) -> str:
    """Return a statement as text. psycopg also accepts bytes and ``psycopg.sql`` objects."""
    if isinstance(sql, (bytes, bytearray)):
        return sql.decode("latin-1")
    as_string = getattr(sql, "as_string", None)
    return as_string(None) if as_string is not None else str(sql)
