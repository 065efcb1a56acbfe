"""``rate_limit``: take starts of a rate in application code, which shares it with the jobs of the same key.

Each call is one short statement. In a transaction it holds the lock of the key until the end of that
transaction: a rollback gives the starts back, and nobody else may have been told meanwhile that they are
used.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from asgiref.sync import sync_to_async
from django.db import connections
from django.db.utils import DataError

from ..compat import DjangoTask
from ..concurrency import KEY_LENGTH, limit_name, name_problem
from ..definition import adopt
from ..routing import default_backend

if TYPE_CHECKING:
    from ..any_task import AnyTask

__all__ = ["RateLimit", "rate_limit"]


@dataclass(frozen=True, slots=True)
class RateLimit:
    """The rate of one key. ``rate_limit()`` makes it; it reads the database only when it is asked."""

    name: str
    key: str

    def take(self, n: int = 1, using: str | None = None) -> bool:
        """Take `n` starts, and return True; or return False if so many are not allowed now.

        In a transaction, other callers and the jobs of the key wait until it ends. Raise ``ValueError`` if
        there is no such rate, or if its burst is less than `n`.
        """
        return self._ask(n, using, only_look=False) == 0

    def seconds_until(self, n: int = 1, using: str | None = None) -> float:
        """Return in how many seconds `n` starts will be allowed, if nobody else takes them. Take nothing.

        0: they are allowed now.
        """
        return self._ask(n, using, only_look=True)

    async def atake(self, n: int = 1, using: str | None = None) -> bool:
        """Like ``take()``, for async code."""
        return await sync_to_async(self.take)(n, using)

    async def aseconds_until(self, n: int = 1, using: str | None = None) -> float:
        """Like ``seconds_until()``, for async code."""
        return await sync_to_async(self.seconds_until)(n, using)

    def _ask(self, n: int, using: str | None, *, only_look: bool) -> float:
        if isinstance(n, bool) or not isinstance(n, int) or not 1 <= n < 2**31:
            raise ValueError(f"The number of starts to take must be a whole number of at least 1, not {n!r}.")
        alias = using or default_backend().home()
        try:
            with connections[alias].cursor() as cursor:
                cursor.execute(
                    "SELECT pgqueue_take_v1(%s, %s, %s::integer, %s)", (self.name, self.key, n, only_look)
                )
                seconds: float = cursor.fetchone()[0]
        except DataError as error:
            # The function refuses what makes no sense, and says how to mend it.
            raise ValueError(str(error).splitlines()[0]) from error
        return seconds


def rate_limit(name: str | AnyTask[..., Any], /, key: str | int = "") -> RateLimit:
    """Return the rate of a name and a key, for application code: ``rate_limit("crm", tenant).take()``.

    ``name``: that of a ``Rate`` or of ``set_limit(name, starts=...)``, or a task. ``key``: the value of the
    key; "": all share the rate. Jobs with the same key and this code use the same starts.
    """
    text: Any = limit_name(adopt(name)) if isinstance(name, DjangoTask) else name
    if problem := name_problem(text):
        raise ValueError(f"The name of a rate {problem} It is {text!r}.")
    value = str(key) if isinstance(key, int) and not isinstance(key, bool) else key
    if not isinstance(value, str) or "\0" in value or len(text) + 1 + len(value) > KEY_LENGTH:
        raise ValueError(
            "The key of a rate must be a string, or a whole number, and have at most "
            f"{KEY_LENGTH} characters with the name of the rate. It is {key!r:.200}."
        )
    return RateLimit(text, value)
