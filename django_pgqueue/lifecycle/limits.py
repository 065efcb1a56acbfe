"""Set limits: how many jobs may run at once, or start in a period, whatever the code declares."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from asgiref.sync import sync_to_async
from django.db import connections

from ..compat import DjangoTask
from ..concurrency import KEY_LENGTH, limit_name
from ..definition import adopt
from ..rates import rate_problem
from ..routing import default_backend

if TYPE_CHECKING:
    from datetime import timedelta

    from ..any_task import AnyTask
    from ..concurrency import OnConflict

__all__ = ["aset_limit", "set_limit", "write_limit"]

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
    text = _checked(limit_name(adopt(name)) if isinstance(name, DjangoTask) else name, running, on_conflict)
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
