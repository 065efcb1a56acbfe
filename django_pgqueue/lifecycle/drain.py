"""Drain a worker: ask it to finish its jobs and end. It hears of it when the caller's transaction commits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from asgiref.sync import sync_to_async
from django.db import connections

from ..models import Worker
from ..routing import default_backend

if TYPE_CHECKING:
    How = Literal["replace", "stop"]

__all__ = ["adrain", "drain"]

_HOWS = ("replace", "stop")
_DRAIN = "SELECT pgqueue_drain_v1(%s, %s)"


def drain(worker: Worker | int, how: How = "replace", *, using: str | None = None) -> bool:
    """Ask a worker process to finish its jobs and end, as SIGTERM does. Return whether it is registered.

    ``worker``: a row of ``Worker``, or its id. ``"replace"``: its supervisor starts a new process in its
    place. ``"stop"``: the supervisor and all of its processes end. A worker in another language has no
    supervisor, so it ends in both cases. The request cannot be taken back. ``using``: the alias of the
    database; by default, that of the row, or of the default backend.

    Raise ``TypeError`` or ``ValueError`` for a bad value.
    """
    pk = worker.pk if isinstance(worker, Worker) else worker
    if isinstance(pk, bool) or not isinstance(pk, int):
        raise TypeError(f"drain(worker) takes a Worker or its id, not {pk!r:.100}.")
    if not -(2**63) <= pk < 2**63:
        raise ValueError(f"drain(worker): {pk} is not the id of a worker, which has 64 bits.")
    if how not in _HOWS:
        raise ValueError(f"drain(how=...) must be 'replace' or 'stop', not {how!r:.100}.")
    alias = using or (worker._state.db if isinstance(worker, Worker) else None) or default_backend().home()
    with connections[alias].cursor() as cursor:
        cursor.execute(_DRAIN, (pk, how))
        found: tuple[Any, ...] | None = cursor.fetchone()
    assert found is not None
    return bool(found[0])


async def adrain(worker: Worker | int, how: How = "replace", *, using: str | None = None) -> bool:
    """Like ``drain()``, for async code."""
    return await sync_to_async(drain)(worker, how, using=using)
