"""The moment at which a request stops changing jobs, also within a statement: a search for text may read a
long history before it finds the next job.
"""

from __future__ import annotations

from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING

from django.db import OperationalError, connections, transaction
from psycopg.errors import QueryCanceled

from ...time_limit import TimeLimitReached

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Deadline"]

_LEAST = 1.0  # seconds for a statement, also at the end: most chunks need less
_NOW = """
    SELECT now.setting, 1000 * date_part('epoch', now.setting::interval)
    FROM (SELECT current_setting('statement_timeout') AS setting) AS now
"""
_SET = "SELECT set_config('statement_timeout', %s, true)"


class Deadline:
    """The end of the time for one request."""

    def __init__(self, alias: str, seconds: float) -> None:
        self._alias = alias
        self._end = monotonic() + seconds

    @property
    def is_over(self) -> bool:
        """Whether the time is over."""
        return monotonic() > self._end

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Run the block in a transaction whose statements end with the time. Raises ``TimeLimitReached``, and
        then the block has changed nothing.
        """
        try:
            with transaction.atomic(using=self._alias), connections[self._alias].cursor() as cursor:
                cursor.execute(_NOW)
                before = cursor.fetchone()[0]
                self.limit()
                yield
                # With ATOMIC_REQUESTS, the transaction goes on, and the limit would, too.
                cursor.execute(_SET, [before])
        except OperationalError as error:
            if not isinstance(error.__cause__, QueryCanceled):
                raise
            raise TimeLimitReached from error

    def limit(self) -> None:
        """Let the next statements take as long as there is time, unless the server permits less."""
        most = round(1000 * max(_LEAST, self._end - monotonic()))
        with connections[self._alias].cursor() as cursor:
            cursor.execute(_NOW)
            now = cursor.fetchone()[1]
            if not 0 < now <= most:
                cursor.execute(_SET, [str(most)])
