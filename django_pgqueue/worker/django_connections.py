"""Django's connections around a job: as around a request, and only those that were used.

A connection that is broken, too old (``CONN_MAX_AGE``), or left by the task in a transaction is closed, with
a pool: given back. The next job gets a new one by itself.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from django.db import connections
from psycopg.pq import TransactionStatus

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper

__all__ = ["tidy_up"]

logger = logging.getLogger(__name__)


def tidy_up() -> None:
    """Before and after each job, on its thread. Never raises: the job's outcome is what matters."""
    for connection in connections.all(initialized_only=True):
        if connection.connection is None:
            continue
        try:
            _tidy(connection)
        except Exception:
            logger.exception("tidying up the connection %r after a job failed", connection.alias)


def _tidy(connection: BaseDatabaseWrapper) -> None:
    # A transaction that was entered but has sent nothing is one too: the next job would work in it.
    if connection.in_atomic_block or _in_transaction(connection.connection):
        connection.in_atomic_block = False
        connection.closed_in_transaction = False
        connection.savepoint_ids = []
        connection.run_on_commit = []
        connection.needs_rollback = False
        connection.close()
    else:
        connection.close_if_unusable_or_obsolete()
    if connection.queries_log:
        connection.queries_log.clear()


def _in_transaction(raw: Any) -> bool:
    """Whether a psycopg connection is in a transaction, or broken; other databases' do not say."""
    info = getattr(raw, "info", None)
    return info is not None and info.transaction_status != TransactionStatus.IDLE
