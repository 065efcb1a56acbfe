"""Set limits: how many jobs may run at once, or start in a period, whatever the code declares."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from asgiref.sync import sync_to_async
from django.db import connections
from django.db.models import BooleanField, F, Func
from django.db.models.expressions import RawSQL
from django.db.utils import DataError

from ..compat import is_task
from ..tasks.keys import KEY_LENGTH, limit_name, name_problem, rate_problem
from ..tasks.routing import default_backend
from ..tasks.task import adopt

if TYPE_CHECKING:
    from datetime import timedelta

    from django.db.models import QuerySet

    from ..tasks.keys import OnConflict
    from ..tasks.task import AnyTask

__all__ = ["SQL", "RateLimit", "aset_limit", "rate_limit", "set_limit", "with_key", "write_limit"]


_MOST = 2**31 - 1


def set_limit(
    name: str | AnyTask[..., Any],
    /,
    running: int | None = None,
    *,
    starts: int | None = None,
    per: timedelta | None = None,
    burst: int | None = None,
    on_conflict: OnConflict | None = None,
    using: str | None = None,
) -> None:
    """Set how many jobs may run at once under a name, or start in a period. The change takes effect within a
    second.

    ``name``: a task, or its path, for its jobs or for each of its keys; the name of a ``Concurrency`` or
    ``Rate``; ``"queue:mail"`` for all jobs of a queue; or ``"*"`` for all jobs. ``running`` jobs may run at
    once. So many ``starts`` are allowed in the period ``per``, of which a ``burst`` at once (the default is
    1). If only one of ``running`` and ``starts`` is given, the other stays as it is; without both, the limit
    goes back to what the code declares. ``on_conflict`` is what happens to a job that finds no room; None
    leaves it as it is. ``using``: the alias of the database.

    What the code declares does not change this limit anymore. Running jobs are not stopped. Raise
    ``ValueError`` or ``TypeError`` for a limit that makes no sense, such as 0: to let no job start, pause
    the queue or the task.
    """
    text = _checked(limit_name(adopt(name)) if is_task(name) else name, running, on_conflict)
    _check_rate(starts, per, burst, on_conflict)
    write_limit(text, running, on_conflict, (starts, per, burst), using=using)


def write_limit(
    name: str,
    running: int | None,
    on_conflict: str | None,
    rate: tuple[int | None, timedelta | None, int | None],
    *,
    whole: bool = False,
    using: str | None = None,
) -> None:
    """Write a limit that was checked. If it is the ``whole`` limit, None means: no such number."""
    parameters: list[Any] = [name, running, on_conflict, *rate, whole]
    with connections[using or default_backend().home()].cursor() as cursor:
        cursor.execute(
            "SELECT pgqueue_set_limit_v1(%s, %s::integer, %s, %s::integer, %s::interval, %s::integer, %s)",
            parameters,
        )


async def aset_limit(
    name: str | AnyTask[..., Any],
    /,
    running: int | None = None,
    *,
    starts: int | None = None,
    per: timedelta | None = None,
    burst: int | None = None,
    on_conflict: OnConflict | None = None,
    using: str | None = None,
) -> None:
    """Like ``set_limit()``, for async code."""
    await sync_to_async(set_limit)(
        name, running, starts=starts, per=per, burst=burst, on_conflict=on_conflict, using=using
    )


def _check_rate(starts: Any, per: Any, burst: Any, on_conflict: Any) -> None:
    """Raise ValueError unless it is no rate, or one that makes sense."""
    if starts is None:
        if (per, burst) != (None, None):
            raise ValueError("set_limit(): a rate needs starts: set_limit(name, starts=100, per=...).")
        return
    if problem := rate_problem(starts, per, 1 if burst is None else burst):
        raise ValueError(problem)
    if on_conflict not in (None, "wait"):
        raise ValueError("Jobs always wait for a rate: leave out on_conflict.")


def _checked(name: Any, running: Any, on_conflict: Any) -> str:
    """Return the name, if the limit makes sense."""
    if not isinstance(name, str):
        raise TypeError(f"set_limit(name, running) takes the name of a limit or a task, not {name!r}.")
    if not 1 <= len(name) <= KEY_LENGTH or "/" in name or "\0" in name:
        raise ValueError(
            f"The name of a limit must be 1 to {KEY_LENGTH} characters without a slash: it applies to each "
            f"of its keys. It is {name!r}."
        )
    if running is not None and (isinstance(running, bool) or not isinstance(running, int)):
        raise TypeError(f"set_limit({name!r}, running) takes a whole number or None, not {running!r}.")
    if running is not None and not 1 <= running <= _MOST:
        raise ValueError(
            f"set_limit({name!r}, running) takes a whole number of at least 1, not {running}. To let no job "
            "start, pause the queue or the task."
        )
    if on_conflict not in (None, "wait", "skip", "cancel"):
        raise ValueError(f"on_conflict must be 'wait', 'skip' or 'cancel', not {on_conflict!r}.")
    if on_conflict not in (None, "wait") and (name == "*" or name.startswith("queue:")):
        raise ValueError(f"Jobs always wait for the limit {name!r}: leave out on_conflict.")
    return name


# ----------------------------------------------------------------------------
# ``rate_limit``: take starts of a rate in application code, which shares it with the jobs of the same key.
#
# Each call is one short statement. In a transaction it holds the lock of the key until the end of that
# transaction: a rollback gives the starts back, and nobody else may have been told meanwhile that they are
# used.


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
    text: Any = limit_name(adopt(name)) if is_task(name) else name
    if problem := name_problem(text):
        raise ValueError(f"The name of a rate {problem} It is {text!r}.")
    value = str(key) if isinstance(key, int) and not isinstance(key, bool) else key
    if not isinstance(value, str) or "\0" in value or len(text) + 1 + len(value) > KEY_LENGTH:
        raise ValueError(
            "The key of a rate must be a string, or a whole number, and have at most "
            f"{KEY_LENGTH} characters with the name of the rate. It is {key!r:.200}."
        )
    return RateLimit(text, value)


# ----------------------------------------------------------------------------
# Find the live jobs of a key: those that hold a slot of it, stand in its line, or have it as unique key.

#: Reads the ids. It takes the key four times.
SQL = Path(__file__).with_name("keyed_jobs.sql").read_text(encoding="utf-8")


def with_key(jobs: QuerySet[Any], key: str) -> QuerySet[Any]:
    """Return those of the jobs that have this key and are not over."""
    # An array: with a subquery, PostgreSQL would read all jobs from the newest one on.
    ids = RawSQL(f"ARRAY({SQL})", [key] * 4)  # noqa: S611 - a constant
    is_one = Func(F("pk"), ids, template="%(expressions)s", arg_joiner=" = ANY ", output_field=BooleanField())
    return jobs.filter(is_one, shelf=0)
