"""Keep Django's connections open from job to job, and check them before and after each job.

A web server closes its connections after each request unless ``CONN_MAX_AGE`` is set. Opening a connection
takes longer than most jobs, so a worker keeps each one, whatever ``CONN_MAX_AGE`` is, until it has not been
used for ``IDLE_CONNECTION_SECONDS`` or is older than ``LONGEST_USE``. If ``IDLE_CONNECTION_SECONDS`` is None,
``CONN_MAX_AGE`` applies.

Before a job, connections that have died since the last job are closed. After a job, a connection is closed if
it is broken, too old, left in a transaction, or not in the state in which it was opened (``session_watch``).
With a pool, it is given back or discarded after each job. Django opens a new one for the next job.

The server is told how to notice that the worker has vanished (``half_open``), so that it releases its locks.
And a task does not wait for an answer that will never come (``answers``).
"""

from __future__ import annotations

import logging
import sys
import threading
from time import monotonic
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import psycopg
from django.db import connections
from django.db.backends.signals import connection_created
from psycopg.pq import TransactionStatus

from ... import conf
from ...answers import be_patient
from ...half_open import tell_server
from .session_watch import OPENED, watch_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from django.db.backends.base.base import BaseDatabaseWrapper

__all__ = ["close_unused", "drop_dead", "hold_nothing", "keep_open", "tidy_up"]

logger = logging.getLogger(__name__)

LONGEST_USE = 3600.0
"""Seconds after which a connection is replaced: the memory of a session on the server only grows."""


_TOLD: WeakSet[Any] = WeakSet()
"""The connections whose server knows how to notice their end. Those of a pool are opened again and again."""

_thread = threading.local()
"""The connections that were open at the last ``tidy_up`` of each thread. Nothing opens one between two jobs,
and Django takes 2 µs to look them up, which is a seventh of what the worker itself does for a job.
"""


def keep_open() -> None:
    """Keep the connections that Django opens in this process from now on."""
    connection_created.connect(_opened, dispatch_uid=__name__)


def drop_dead() -> None:
    """Before each job, on its thread, close dead or old connections. This does not query the server."""
    _each(_drop_dead, getattr(_thread, "used", None))


def tidy_up() -> None:
    """After each job, on its thread, tidy up its connections. Never raise: the job's outcome matters."""
    _thread.used = _each(_tidy)


def close_unused() -> None:
    """Close the connections that this thread has not used for ``IDLE_CONNECTION_SECONDS``."""
    _each(_close_unused)


def hold_nothing() -> bool:
    """Return whether another job can use this thread's connections before the current job ends.

    It cannot if the job is in a transaction, has left something in a session, or keeps a cursor: it would use
    that cursor on another thread, in the middle of what the other job does. Of other databases than
    PostgreSQL this is not known.
    """
    return all(map(_holds_nothing, connections.all(initialized_only=True)))


def _holds_nothing(connection: BaseDatabaseWrapper) -> bool:
    if connection.in_atomic_block:  # even if it has sent nothing yet
        return False
    if connection.connection is None:
        return True
    if watch_of(connection) is None or _in_transaction(connection.connection):
        return False
    # A cursor refers to its connection, whatever kind of cursor it is.
    return _is_clean(connection) and _references(connection) <= _REFERENCES


def _references(holder: Any) -> int:
    return sys.getrefcount(holder.connection)


class _Holder:
    connection: Any = None


def _usual_references() -> int:
    """Return what ``_references`` returns if only Django and the watch refer to a connection.

    It differs between versions of Python.
    """
    django, watch = _Holder(), _Holder()
    django.connection = watch.connection = _Holder()
    return _references(django)


_REFERENCES = _usual_references()


def _opened(connection: BaseDatabaseWrapper, **kwargs: Any) -> None:
    """Replace the ``close_at`` that Django has set from ``CONN_MAX_AGE``, unless there is a pool."""
    raw: Any = connection.connection
    if hasattr(raw, "pgconn") and raw not in _TOLD:
        _TOLD.add(raw)
        _tell_server(connection, raw)
    is_pooled = getattr(raw, "_pool", None) is not None
    if hasattr(raw, "pgconn") and not is_pooled and conf.current().idle_connection_seconds is not None:
        connection.close_at = monotonic() + LONGEST_USE


def _tell_server(connection: BaseDatabaseWrapper, raw: Any) -> None:
    try:
        if tell_server(raw, of_task=True):
            parameters = connection.get_connection_params()
            for unwanted in ("cursor_factory", "context", "autocommit"):
                parameters.pop(unwanted, None)
            be_patient(raw, parameters)
        if not raw.autocommit:
            raw.commit()
    except psycopg.Error:  # the connection itself may be good, so its first query decides that
        logger.debug("the session could not be told how to notice the end of its client", exc_info=True)
        if not raw.closed:
            raw.rollback()


def _each(
    call: Callable[[BaseDatabaseWrapper], None], among: Iterable[BaseDatabaseWrapper] | None = None
) -> list[BaseDatabaseWrapper]:
    """Call this with each connection of this thread that is open, and return those that were open before."""
    found = connections.all(initialized_only=True) if among is None else among
    used = [each for each in found if each.connection is not None or each.in_atomic_block]
    for connection in used:
        try:
            call(connection)
        except Exception:
            logger.exception("tidying up the connection %r failed", connection.alias)
    return used


def _drop_dead(connection: BaseDatabaseWrapper) -> None:
    watch = watch_of(connection)
    if watch is not None and not watch.is_quiet(connection.connection):
        _discard(connection)
        return
    connection.close_if_unusable_or_obsolete()
    _close_unused(connection)


def _close_unused(connection: BaseDatabaseWrapper) -> None:
    watch, longest = watch_of(connection), conf.current().idle_connection_seconds
    if watch is not None and longest is not None and watch.unused_for() >= longest:
        connection.close()


def _tidy(connection: BaseDatabaseWrapper) -> None:
    # This includes an atomic block that has sent nothing yet, because the next job would run in it.
    if connection.in_atomic_block or _in_transaction(connection.connection) or not _is_clean(connection):
        _discard(connection)
        return
    connection.close_if_unusable_or_obsolete()
    _close_unused(connection)  # also records that the job has used it
    if connection.queries_log:
        connection.queries_log.clear()


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
    watch = watch_of(connection)
    if watch is None:
        return connection.connection not in OPENED
    return watch.is_clean(connection.connection)
