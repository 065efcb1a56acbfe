"""A time limit for statements that only read, and that may have much to read.

The limit holds for one transaction, or for a savepoint of the one that is open, as with ``ATOMIC_REQUESTS``.
The block is rolled back at its end, and the limit with it: it never reaches a later statement of the request,
nor the next user of the connection in a pool.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from django.db import OperationalError, connections, transaction
from psycopg.errors import QueryCanceled

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["TimeLimitReached", "time_limit"]

# A shorter limit of the server, the role or the connection stays. 0 means none.
_LIMIT = """
    SELECT set_config('statement_timeout', %s, true) FROM pg_settings
    WHERE name = 'statement_timeout' AND (setting = '0' OR setting::bigint > %s)
"""


class TimeLimitReached(Exception):
    """A statement has been cancelled by the server."""


@contextmanager
def time_limit(alias: str, seconds: float) -> Iterator[None]:
    """Let each statement of the block take so long at most. What the block writes is rolled back.

    Raises ``TimeLimitReached``; the transaction around the block, if there is one, goes on.
    """
    limit = max(1, round(1000 * seconds))
    try:
        with transaction.atomic(using=alias):
            with connections[alias].cursor() as cursor:
                cursor.execute(_LIMIT, [str(limit), limit])
            yield
            transaction.set_rollback(True, using=alias)
    except OperationalError as error:
        if not isinstance(error.__cause__, QueryCanceled):
            raise
        raise TimeLimitReached from error
