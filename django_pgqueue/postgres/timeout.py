"""A time limit for statements that only read, and that may have to read many rows.

The limit applies to one transaction, or to a savepoint if a transaction is open, as with ``ATOMIC_REQUESTS``.
The block is rolled back at its end, and with it the limit. So the limit never affects later statements of the
request, or the next user of the connection in a pool.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from django.db import OperationalError, transaction
from psycopg.errors import QueryCanceled

from . import fetch_rows, fetch_value

T = TypeVar("T")

# A shorter limit of the server, the role or the connection is kept; 0 means no limit. It is not read from
# pg_settings, because that view reads all settings of the server. Plans are not compiled: this would take
# most of the time of a short statement.
_LIMIT = """
    SELECT now.setting, set_config('jit', 'off', true), set_config('statement_timeout', CASE
        WHEN now.seconds = 0 OR 1000 * now.seconds > %s THEN %s ELSE now.setting END, true)
    FROM (
        SELECT setting, date_part('epoch', setting::interval) AS seconds
        FROM current_setting('statement_timeout') AS setting
    ) AS now
"""


class TimeLimitReached(Exception):
    """The server has cancelled a statement because of the time limit."""


@contextmanager
def time_limit(alias: str, seconds: float, *, keep: bool = False) -> Iterator[None]:
    """Limit the time of each statement in the block. Changes that the block makes are rolled back, unless
    ``keep``.

    Raises ``TimeLimitReached``, and then nothing has changed. The transaction around the block, if there is
    one, can continue.
    """
    limit = max(1, round(1000 * seconds))
    try:
        with transaction.atomic(using=alias):
            before = fetch_value(alias, _LIMIT, limit, str(limit))
            yield
            if keep:  # with ATOMIC_REQUESTS, the transaction goes on, and the limit would, too
                fetch_value(alias, "SELECT set_config('statement_timeout', %s, true)", before)
            else:
                transaction.set_rollback(True, using=alias)
    except OperationalError as error:
        if not isinstance(error.__cause__, QueryCanceled):
            raise
        raise TimeLimitReached(f"The database did not answer within {seconds:g} s.") from error


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
