"""Set limits: how many jobs may run at once under a name, whatever the code declares."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from asgiref.sync import sync_to_async
from django.db import connections

from ..compat import DjangoTask
from ..concurrency import KEY_LENGTH, limit_name
from ..definition import adopt
from ..routing import default_backend

if TYPE_CHECKING:
    from ..concurrency import OnConflict
    from ..definition import AnyTask

__all__ = ["aset_limit", "set_limit"]

_MOST = 2**31 - 1


def set_limit(
    name: str | AnyTask[..., Any],
    /,
    running: int | None,
    *,
    on_conflict: OnConflict | None = None,
    using: str | None = None,
) -> None:
    """Set how many jobs may run at once under a name. The change takes effect within a second.

    ``name``: a task, or its path, for its jobs or for each of its keys; the name of a ``Concurrency``;
    ``"queue:mail"`` for all jobs of a queue; or ``"*"`` for all jobs. ``running=None`` goes back to what the
    code declares. ``on_conflict`` is what happens to a job that finds no room; None leaves it as it is.
    ``using``: the alias of the database.

    What the code declares does not change this limit anymore. Running jobs are not stopped. Raise
    ``ValueError`` or ``TypeError`` for a limit that makes no sense, such as 0: to let no job start, pause
    the queue or the task.
    """
    text = _checked(limit_name(adopt(name)) if isinstance(name, DjangoTask) else name, running, on_conflict)
    alias = using or default_backend().home()
    with connections[alias].cursor() as cursor:
        cursor.execute("SELECT pgqueue_set_limit_v1(%s, %s::integer, %s)", (text, running, on_conflict))


async def aset_limit(
    name: str | AnyTask[..., Any],
    /,
    running: int | None,
    *,
    on_conflict: OnConflict | None = None,
    using: str | None = None,
) -> None:
    """Like ``set_limit()``, for async code."""
    await sync_to_async(set_limit)(name, running, on_conflict=on_conflict, using=using)


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
