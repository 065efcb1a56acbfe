"""Django's connections around a job: as around a request, and only those that were used.

Before a job a connection is closed that has died since the last one. After a job one is closed that is
broken, too old (``CONN_MAX_AGE``), left by the task in a transaction, or not as it was when it was opened
(``session_watch``); with a pool: given back, or thrown away. The next job gets a new one by itself.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from django.db import connections
from psycopg.pq import TransactionStatus

from .session_watch import OPENED, watch_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from django.db.backends.base.base import BaseDatabaseWrapper

__all__ = ["drop_dead", "tidy_up"]

logger = logging.getLogger(__name__)


def drop_dead() -> None:
    """Before each job, on its thread: what has died or grown too old meanwhile goes. Asks no server."""
    _each(_drop_dead)


def tidy_up() -> None:
    """After each job, on its thread. Never raises: the job's outcome is what matters."""
    _each(_tidy)


def _each(call: Callable[[BaseDatabaseWrapper], None]) -> None:
    for connection in connections.all(initialized_only=True):
        if connection.connection is None and not connection.in_atomic_block:
            continue
        try:
            call(connection)
        except Exception:
            logger.exception("tidying up the connection %r failed", connection.alias)


def _drop_dead(connection: BaseDatabaseWrapper) -> None:
    watch = watch_of(connection)
    if watch is not None and not watch.is_quiet(connection.connection):
        _discard(connection)
    else:
        connection.close_if_unusable_or_obsolete()


def _tidy(connection: BaseDatabaseWrapper) -> None:
    # A transaction that was entered but has sent nothing is one too: the next job would work in it.
    if connection.in_atomic_block or _in_transaction(connection.connection) or not _is_clean(connection):
        _discard(connection)
        return
    connection.close_if_unusable_or_obsolete()
    if connection.queries_log:
        connection.queries_log.clear()


def _discard(connection: BaseDatabaseWrapper) -> None:
    """End the session. Nothing stays of Django's notion of it either: the next job gets a new object."""
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
    """Whether a psycopg connection is in a transaction, or broken; other databases' do not say."""
    pgconn = getattr(raw, "pgconn", None)
    return pgconn is not None and pgconn.transaction_status != TransactionStatus.IDLE


def _is_clean(connection: BaseDatabaseWrapper) -> bool:
    """Whether the session can be handed on. A watch that a task has taken off has not seen everything."""
    watch = watch_of(connection)
    if watch is None:
        return connection.connection not in OPENED
    return watch.is_clean(connection.connection)
