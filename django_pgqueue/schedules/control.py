"""Pause, resume and run a schedule by hand. Each is one statement, which waits for a round that fires it."""

from __future__ import annotations

from difflib import get_close_matches

from django.db import connections, router
from django.db.models.functions import Now

from ..models import Job, Schedule

__all__ = ["pause", "require", "resume", "run_now"]


def pause(name: str, *, reason: str = "", by: str = "", using: str | None = None) -> bool:
    """Let a schedule fire nothing until it is resumed. Return False if it was paused already.

    `reason` and `by` are shown with the schedule. Raise ``Schedule.DoesNotExist`` for an unknown name.
    """
    alias = using or router.db_for_write(Schedule)
    active = Schedule.objects.using(alias).filter(name=name, paused_at__isnull=True)
    if active.update(paused_at=Now(), paused_by=by[:255], pause_reason=reason[:500]):
        return True
    require(name, alias)
    return False


def resume(name: str, *, using: str | None = None) -> bool:
    """Continue a paused schedule with its next tick from now on. Return False if it was not paused.

    What it has missed during the pause is not caught up. Raise ``Schedule.DoesNotExist`` for an unknown name.
    """
    alias = using or router.db_for_write(Schedule)
    paused = Schedule.objects.using(alias).filter(name=name, paused_at__isnull=False)
    if paused.update(paused_at=None, paused_by="", pause_reason=""):
        return True
    require(name, alias)
    return False


def run_now(name: str, *, using: str | None = None) -> Job:
    """Enqueue one job of a schedule now, and return it. The ticks of the schedule do not change.

    It works for a paused schedule, too. Raise ``Schedule.DoesNotExist`` for an unknown name.
    """
    alias = using or router.db_for_write(Schedule)
    require(name, alias)
    with connections[alias].cursor() as cursor:
        cursor.execute("SELECT pgqueue_run_schedule_v1(%s)", (name,))
        (pk,) = cursor.fetchone()
    return Job.objects.using(alias).get(pk=pk)


def require(name: str, alias: str) -> None:
    """Raise ``Schedule.DoesNotExist``, with a similar name, if there is no such schedule."""
    known = Schedule.objects.using(alias)
    if known.filter(name=name).exists():
        return
    names = list(known.values_list("name", flat=True)[:1000])
    near = get_close_matches(name, names, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    raise Schedule.DoesNotExist(f"There is no schedule {name!r} in the database {alias!r}.{hint}")
