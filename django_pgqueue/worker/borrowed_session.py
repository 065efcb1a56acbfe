"""A session on Django's own connection of this thread: for workers that run jobs in their caller's process.

It sees what the caller sees, also in an open transaction. Each call of ``run`` is one savepoint there, so
that an error leaves the transaction usable.
"""

from __future__ import annotations

from datetime import UTC
from typing import TYPE_CHECKING, Any

import psycopg
from django.db import Error, connections, transaction
from psycopg.types.datetime import TimestamptzLoader
from psycopg.types.string import TextLoader

from ..session import Session

if TYPE_CHECKING:
    from psycopg.abc import Buffer

__all__ = ["BorrowedSession"]

_ATTACH_SQL = "SET CONSTRAINTS pgqueue_attach IMMEDIATE; SET CONSTRAINTS pgqueue_attach DEFERRED"


class _UtcText(TimestamptzLoader):
    """Gives times as the text that other sessions get, whichever time zone Django has set."""

    def load(self, data: Buffer) -> Any:
        return super().load(data).astimezone(UTC).isoformat(" ")


class BorrowedSession(Session):
    """Raises errors of psycopg, as other sessions do, and not those that Django makes of them."""

    def __init__(self, alias: str) -> None:
        self.pooled = True  # nothing is prepared or set for it
        self.holds_lock = False
        self._alias = alias
        self._prepared = None

    def run(self, *statements: tuple[str, Any], durable: bool = False) -> list[list[Any]]:
        """Run statements in one transaction, and return the rows of each."""
        try:
            with transaction.atomic(using=self._alias):
                return [self._rows(*statement) for statement in statements]
        except Error as error:
            if isinstance(error.__cause__, psycopg.Error):
                raise error.__cause__ from None
            raise

    def attach(self) -> None:
        """In an open transaction, do now what its commit would do for jobs that wait for others: tell those
        others (``attach_trigger_v1.sql``). If they end in this transaction, the commit would be too late.
        """
        if connections[self._alias].in_atomic_block:
            self.run((_ATTACH_SQL, None))

    def _rows(self, query: str, parameters: Any = None) -> list[Any]:
        with connections[self._alias].cursor() as cursor:
            adapters = cursor.cursor.adapters
            adapters.register_loader("jsonb", TextLoader)
            adapters.register_loader("timestamptz", _UtcText)
            cursor.execute(query, parameters)
            return cursor.fetchall() if cursor.description else []
