"""Keep Django's connections open from job to job, and clean.

Opening a connection takes longer than most jobs, so a worker keeps each one, whatever ``CONN_MAX_AGE`` is,
until it has not been used for ``IDLE_CONNECTION_TIMEOUT`` or is older than ``LONGEST_USE``. If
``IDLE_CONNECTION_TIMEOUT`` is None, ``CONN_MAX_AGE`` applies.

Before a job, connections that have died since the last job are closed. After a job, a connection is closed if
it is broken, too old, left in a transaction, or if the job may have left something in its session. With a
pool, it is given back or discarded after each job. Django opens a new one for the next job.

What a job may have left is decided without a round trip (``SessionWatch``). What a function in the database,
or a task that uses psycopg directly, leaves there is not seen: temporary tables, advisory locks, settings
that the server does not report.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable
from functools import lru_cache, partial
from time import monotonic
from types import SimpleNamespace
from typing import Any
from weakref import ReferenceType, WeakSet, ref

import psycopg
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created
from django.db.transaction import TransactionManagementError
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from ... import conf
from ...formatting import get_logger
from ...postgres.liveness import set_server_keepalive

logger = get_logger(__name__)

#: Seconds after which a connection is replaced: the memory of a session on the server only grows.
LONGEST_USE = 3600.0
#: All psycopg connections that Django has opened in this process and that still exist.
OPENED: WeakSet[Any] = WeakSet()
#: Those whose session a job may have changed. A pool may contain some, which a task has given back.
_TOUCHED: WeakSet[Any] = WeakSet()
_WRITTEN_SQL = "SELECT pg_current_xact_id_if_assigned() IS NOT NULL"
_REPORTED = (
    b"TimeZone", b"DateStyle", b"IntervalStyle", b"client_encoding", b"search_path",
    b"default_transaction_read_only", b"session_authorization",
)  # fmt: skip
_MOST_REPLACED = 1_000  # unusable connections of a pool, one after another
#: Of each thread, ``tidied``: the connections that were open at the last ``tidy_up``, and when that was.
#: Nothing opens one between two jobs, and Django takes 2 µs to look them up.
_thread = threading.local()
#: Seconds for which only the end of a session is noticed. Its age is checked again after that.
TIDY_FOR = 1.0
_NEVER = float("inf")
#: The sessions that the server has ended: it says so before it closes the connection. Usually none.
_ENDED: set[ReferenceType[Any]] = set()


def watch_connections() -> None:
    """Keep and watch the connections that Django opens in this process from now on."""
    connection_created.connect(_opened, dispatch_uid=__name__)


def drop_dead() -> None:
    """Close dead or old connections before a job. This does not query the server."""
    used, tidied = getattr(_thread, "tidied", (None, 0.0))
    if used is None or monotonic() - tidied > TIDY_FOR:
        _each(_drop_dead, used)
        return
    # They were looked at a moment ago, but the server may have ended their sessions.
    if ended := [each for each in used if has_ended(each.connection)]:
        _each(_discard, ended)


def tidy_up() -> list[str]:
    """Tidy up the connections after a job. Never raise: the job's outcome matters.

    Return the databases in which it has written in a transaction that it has left open. This is undone.
    """
    unsaved: list[str] = []
    used, changed = [], []
    now = monotonic()
    for connection in connections.all(initialized_only=True):
        if connection.connection is None and not connection.in_atomic_block:
            # What a task has set on Django's object, such as its tenant's schema, the next session would get.
            del connections[connection.alias]
            continue
        used.append(connection)
        if not _is_as_before(connection, now):
            changed.append(connection)
    if changed:
        _each(lambda connection: _tidy(connection, unsaved), changed)
    _thread.tidied = used, now
    return unsaved


def left_open(databases: list[str]) -> TransactionManagementError:
    """Return the exception for a task that has lost what it wrote (``tidy_up``)."""
    return TransactionManagementError(
        f"The task has left a transaction open in the database {', '.join(databases)}, for example after "
        "set_autocommit(False). What it wrote there was rolled back. Use transaction.atomic()."
    )


def close_unused() -> None:
    """Close the connections that this thread has not used for ``IDLE_CONNECTION_TIMEOUT``."""
    _each(_close_unused)


def has_written(connection: BaseDatabaseWrapper) -> bool:
    """Return whether there is an open transaction that has written something, or that an error has broken."""
    raw: Any = connection.connection
    status = raw.pgconn.transaction_status if hasattr(raw, "pgconn") else None
    if status != TransactionStatus.INTRANS:
        return status == TransactionStatus.INERROR
    row = psycopg.Cursor(raw, row_factory=tuple_row).execute(_WRITTEN_SQL).fetchone()
    return row is not None and bool(row[0])


def _each(
    call: Callable[[BaseDatabaseWrapper], None], among: Iterable[BaseDatabaseWrapper] | None = None
) -> None:
    """Call this with each open connection of this thread."""
    for connection in connections.all(initialized_only=True) if among is None else among:
        if connection.connection is not None or connection.in_atomic_block:
            try:
                call(connection)
            except Exception:
                logger.exception("tidying up the connection %r failed", connection.alias)


def _drop_dead(connection: BaseDatabaseWrapper) -> None:
    if has_ended(connection.connection):
        _discard(connection)
    else:
        connection.close_if_unusable_or_obsolete()
        _close_unused(connection)


def _is_as_before(connection: BaseDatabaseWrapper, now: float) -> bool:
    """Return whether a job has left a connection so that there is nothing to do, which is the usual case. A
    job without queries takes longer for this than for all else, so it looks at each thing once.
    """
    watch, raw = _watch_of(connection), connection.connection
    if (
        watch is None
        or connection.in_atomic_block
        or connection.errors_occurred
        or now >= (connection.close_at or _NEVER)
        or connection.queries_log
        or not watch.is_clean(raw)
        or watch.unused_for(now) >= (conf.current().idle_connection_timeout or _NEVER)
    ):
        return False
    # This is all that close_if_unusable_or_obsolete() would do.
    connection.health_check_done = False  # type: ignore[attr-defined]
    return True


def _tidy(connection: BaseDatabaseWrapper, unsaved: list[str]) -> None:
    # This includes an atomic block that has sent nothing yet, because the next job would run in it.
    if connection.in_atomic_block or _in_transaction(connection.connection) or not _is_clean(connection):
        if has_written(connection):
            unsaved.append(connection.alias)
        _discard(connection)
        return
    connection.close_if_unusable_or_obsolete()
    _close_unused(connection)
    if connection.queries_log:
        connection.queries_log.clear()


def _close_unused(connection: BaseDatabaseWrapper) -> None:
    watch, longest = _watch_of(connection), conf.current().idle_connection_timeout
    if watch is not None and longest is not None and watch.unused_for(monotonic()) >= longest:
        connection.close()


def _discard(connection: BaseDatabaseWrapper) -> None:
    """End the session and drop Django's connection object, so that the next job gets a new one."""
    del connections[connection.alias]
    raw: Any = connection.connection
    if raw is None:
        return
    if hasattr(raw, "pgconn"):
        raw.close()  # first, so that a pool does not hand it on
    connection.in_atomic_block = False
    connection.closed_in_transaction = False
    connection.close()


def _in_transaction(raw: Any) -> bool:
    """Return whether a psycopg connection is in a transaction or broken; False for other databases."""
    pgconn = getattr(raw, "pgconn", None)
    return pgconn is not None and pgconn.transaction_status != TransactionStatus.IDLE


def _is_clean(connection: BaseDatabaseWrapper) -> bool:
    """Return whether the session can be reused. If a task has removed the watch, it missed statements."""
    watch = _watch_of(connection)
    if watch is None:
        return connection.connection not in OPENED
    return watch.is_clean(connection.connection)


def hold_nothing() -> bool:
    """Return whether another job can use this thread's connections before the current job ends.

    It cannot if the job is in a transaction, has left something in a session, or keeps a cursor: it would use
    that cursor on another thread, in the middle of what the other job does. Of other databases than
    PostgreSQL this is not known.
    """
    for connection in connections.all(initialized_only=True):
        if connection.in_atomic_block:  # even if it has sent nothing yet
            return False
        if connection.connection is None:
            continue
        if _watch_of(connection) is None or _in_transaction(connection.connection):
            return False
        # A cursor refers to its connection, whatever kind of cursor it is.
        if not _is_clean(connection) or _references(connection) > _REFERENCES:
            return False
    return True


def _references(holder: Any) -> int:
    return sys.getrefcount(holder.connection)


#: What ``_references`` returns if only Django and the watch refer to a connection, in this version of Python.
_DJANGO = SimpleNamespace(connection=object())
_WATCH = SimpleNamespace(connection=_DJANGO.connection)
_REFERENCES = _references(_DJANGO)


def _opened(connection: BaseDatabaseWrapper, **kwargs: Any) -> None:
    raw: Any = connection.connection
    if not hasattr(raw, "pgconn"):
        return  # a database other than PostgreSQL
    if raw not in OPENED:  # connections of a pool are opened again and again
        OPENED.add(raw)
        session = ref(raw, _ENDED.discard)
        hash(session)  # without it, it could not be discarded once the object is gone
        raw.add_notice_handler(partial(_note_end, session))
        _tell_server(raw)
    watch = _watch_of(connection)
    if watch is None:
        watch = SessionWatch()
        # The first, not the last: execute_wrapper() removes the last one when a task leaves it.
        connection.execute_wrappers.insert(0, watch)
    if watch.replacing:
        return
    if getattr(raw, "_pool", None) is not None:
        _replace_unusable(connection, watch)
    else:
        _TOUCHED.discard(raw)
        if conf.current().idle_connection_timeout is not None:
            connection.close_at = monotonic() + LONGEST_USE  # which Django has set from CONN_MAX_AGE
    watch.begin(connection.connection)
    if connection_created.receivers[-1][0][0] != __name__:
        # Run after the project's own receivers: their changes belong to the session's initial state.
        connection_created.disconnect(dispatch_uid=__name__)
        watch_connections()


def _tell_server(raw: Any) -> None:
    """Tell the server how to notice that the worker has vanished, so that it releases its locks."""
    try:
        set_server_keepalive(raw, of_task=True)
        if not raw.autocommit:
            raw.commit()
    except psycopg.Error:  # the connection itself may be good, so its first query decides that
        logger.debug("the session could not be set to notice the end of its client", exc_info=True)
        if not raw.closed:
            raw.rollback()


def _replace_unusable(connection: BaseDatabaseWrapper, watch: SessionWatch) -> None:
    """Replace a session of a pool that has died in it, or that a task has changed."""
    watch.replacing = True
    try:
        for _ in range(_MOST_REPLACED):
            raw: Any = connection.connection
            if not has_ended(raw) and raw not in _TOUCHED:
                break
            raw.close()  # the pool discards closed connections
            connection.close()
            connection.connect()
    finally:
        watch.replacing = False


def _note_end(session: ReferenceType[Any], notice: psycopg.errors.Diagnostic) -> None:
    """Note the end of a session, which the server announces as a FATAL, or after a crash as a WARNING."""
    if notice.severity_nonlocalized == "FATAL" or (notice.sqlstate or "").startswith("57P"):
        _ENDED.add(session)


def has_ended(raw: Any) -> bool:
    """Return whether the server has ended a session, by what has arrived. This does not wait. Of other
    databases than PostgreSQL this is not known.

    Unlike ``poll()``, this does not let go of the interpreter lock, which a thread gets back only after
    milliseconds if others compute.
    """
    pgconn = getattr(raw, "pgconn", None)
    if pgconn is None:
        return False
    try:
        pgconn.consume_input()  # raises at the end of the stream
        pgconn.is_busy()  # calls the handlers of notices
    except psycopg.Error:
        return True
    return bool(_ENDED) and ref(raw) in _ENDED


def _watch_of(connection: BaseDatabaseWrapper) -> SessionWatch | None:
    for wrapper in connection.execute_wrappers:
        if isinstance(wrapper, SessionWatch):
            return wrapper
    return None


class SessionWatch:
    """An execute wrapper of one Django connection, which may use several sessions one after another.

    It sees the text of every statement that goes through Django, the settings that the server reports by
    itself, whoever has changed them, and the attributes of psycopg's connection.
    """

    def __init__(self) -> None:
        self.replacing = False
        self._used = False
        self._used_at = 0.0
        self._is_touched = False
        self._raw: Any = None
        self._at_first: tuple[Any, ...] = ()

    def __call__(
        self, execute: Callable[..., Any], sql: Any, params: Any, many: bool, context: dict[str, Any]
    ) -> Any:
        """Note whether a statement may leave something. Django calls this for each statement."""
        self._used = True
        # The ORM sends the same few texts repeatedly. Others are not remembered.
        text = sql if type(sql) is str else _as_text(sql)
        if (_remembered if len(text) <= 4096 else touches_session)(text):
            self._is_touched = True
            _TOUCHED.add(context["connection"].connection)
        return execute(sql, params, many, context)

    def begin(self, raw: Any) -> None:
        """Remember the state of a new session."""
        self._used = True
        self._is_touched = raw in _TOUCHED
        self._raw = raw
        self._at_first = _visible_state(raw)

    def unused_for(self, now: float) -> float:
        """Return the seconds since the last call that found the session used; 0 if it was used since then."""
        if self._used:
            self._used, self._used_at = False, now
        return now - self._used_at

    def is_clean(self, raw: Any) -> bool:
        """Return whether the session is in the same state as when it began."""
        return (
            raw is self._raw
            and not self._is_touched
            and not _in_transaction(raw)
            and _visible_state(raw) == self._at_first
        )


def _visible_state(raw: Any) -> tuple[Any, ...]:
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


#: How statements begin that leave nothing, unless they call one of the functions below. All others may.
_HARMLESS = (
    "select", "insert", "update", "delete", "with", "merge", "values", "savepoint", "release", "rollback",
    "begin", "commit", "copy", "call", "lock", "truncate", "notify", "explain", "refresh", "fetch", "close",
    "set local", "set transaction", "set constraints",
)  # fmt: skip
_LEAVE = ("advisory_lock", "set_config", "setseed", "dblink_connect", "pg_temp", " temp ", " temporary ")


def touches_session(text: str) -> bool:
    """Return whether a statement may leave something in the session: it is not one that usually leaves
    nothing, or it is several statements. A mistake costs a new connection.
    """
    lower = text.lower().strip("(; \n\t")
    if lower.startswith("/*"):
        lower = lower.partition("*/")[2].lstrip()
    if ";" in lower or not " ".join(lower[:100].split()).startswith(_HARMLESS):
        return lower != ""
    if any(word in lower for word in _LEAVE):
        return "set_config" not in lower or ", true" not in lower  # set_config(..., true) is local
    return False


_remembered = lru_cache(maxsize=512)(touches_session)
