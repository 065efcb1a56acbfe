"""Django's connections around a job: as around a request, and only those that were used.

A connection that is broken, too old (``CONN_MAX_AGE``), or left by the task in a transaction is closed, with
a pool: given back. The next job gets a new one by itself.
"""

from __future__ import annotations

from django.db import connections
from psycopg.pq import TransactionStatus

__all__ = ["tidy_up"]


def tidy_up() -> None:
    """Before and after each job, on its thread."""
    for connection in connections.all(initialized_only=True):
        raw = connection.connection
        if raw is None:
            continue
        if getattr(raw, "info", None) is not None and raw.info.transaction_status != TransactionStatus.IDLE:
            connection.in_atomic_block = False
            connection.savepoint_ids = []
            connection.run_on_commit = []
            connection.needs_rollback = False
            connection.close()
        else:
            connection.close_if_unusable_or_obsolete()
        if connection.queries_log:
            connection.queries_log.clear()
