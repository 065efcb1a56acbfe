"""A time limit for statements that only read, and that may have to read many rows.

The limit applies to one transaction, or to a savepoint if a transaction is open, as with ``ATOMIC_REQUESTS``.
The block is rolled back at its end, and with it the limit, so the limit never affects later statements of the
request, or the next user of the connection in a pool.

A page reads many figures in blocks within that of the page, and each statement is a round trip, so these
blocks share one savepoint, to which only one that has failed goes back, and a limit is set only before a
statement that needs another one than the statement before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from django.db import OperationalError, connections, transaction
from psycopg.errors import QueryCanceled
from psycopg.pq import TransactionStatus

from . import fetch_rows, fetch_value, sql_of

T = TypeVar("T")

_BEGIN = sql_of(__file__, "limit_begin")
_SET = "SELECT set_config('statement_timeout', %s, true)"


class TimeLimitReached(Exception):
    """The server has cancelled a statement because of the time limit."""


class _Limits:
    """The limits of a transaction in milliseconds. Django calls it for each statement of the connection."""

    def __init__(self, alias: str, limit: int) -> None:
        self.alias = alias
        self.wanted = [limit]  # by the open blocks, the innermost last
        self.in_force = limit
        self.depth = len(connections[alias].savepoint_ids)

    @classmethod
    def of(cls, alias: str) -> _Limits | None:
        """Return the settings of the open block; None if a newer savepoint of Django's must stay."""
        connection = connections[alias]
        found = next((each for each in connection.execute_wrappers if isinstance(each, cls)), None)
        return found if found and found.depth == len(connection.savepoint_ids) else None

    def __call__(self, execute: Any, sql: Any, parameters: Any, many: bool, context: Any) -> Any:
        if self.in_force != self.wanted[-1]:
            self.in_force = self.wanted[-1]  # before it is set: this statement comes here, too
            fetch_value(self.alias, _SET, str(self.in_force))
        try:
            return execute(sql, parameters, many, context)
        finally:
            if str(sql).startswith("ROLLBACK TO"):  # and the limit to what it was then
                self.in_force = 0

    @contextmanager
    def narrowed(self, limit: int) -> Iterator[None]:
        """Limit the time further in a block. If a statement fails there, the transaction can continue."""
        self.wanted.append(min(limit, self.wanted[-1]))
        try:
            yield
        except BaseException:
            connection = connections[self.alias]
            if connection.connection.info.transaction_status == TransactionStatus.INERROR:
                with connection.cursor() as cursor:
                    cursor.execute("ROLLBACK TO SAVEPOINT time_limit")
            raise
        finally:
            self.wanted.pop()


@contextmanager
def time_limit(alias: str, seconds: float, *, keep: bool = False) -> Iterator[None]:
    """Limit the time of each statement in the block. Changes that the block makes are rolled back, unless
    ``keep``; the ones of a block within another one together with the other one.

    Raises ``TimeLimitReached``, and then nothing has changed. The transaction around the block, if there is
    one, can continue.
    """
    limit = max(1, round(1000 * seconds))
    limits = None if keep else _Limits.of(alias)
    try:
        with limits.narrowed(limit) if limits else _first(alias, limit, keep=keep):
            yield
    except OperationalError as error:
        if not isinstance(error.__cause__, QueryCanceled):
            raise
        raise TimeLimitReached(f"The database did not answer within {seconds:g} s.") from error


@contextmanager
def _first(alias: str, limit: int, *, keep: bool) -> Iterator[None]:
    with transaction.atomic(using=alias):
        with connections[alias].cursor() as cursor:
            cursor.execute(_BEGIN.format(limit=limit))
            before, in_force, *_rest = cursor.fetchone()
        if keep:  # a block within this one has a savepoint of its own, which it goes back to
            yield
            # With ATOMIC_REQUESTS, the transaction goes on, and the limit would, too.
            fetch_value(alias, _SET, before)
        else:
            with connections[alias].execute_wrapper(_Limits(alias, in_force)):
                yield
            transaction.set_rollback(True, using=alias)


def within(alias: str, seconds: float, read: Callable[[], T]) -> T | None:
    """Return what ``read`` returns, or None if one of its statements takes longer."""
    try:
        with time_limit(alias, seconds):
            return read()
    except TimeLimitReached:
        return None


def rows_within(alias: str, seconds: float, statement: str, parameters: dict[str, Any]) -> list[Any]:
    """Return the rows of a statement. Raises ``TimeLimitReached``."""
    with time_limit(alias, seconds):
        return fetch_rows(alias, statement, parameters)
