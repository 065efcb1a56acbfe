"""Pause, resume and run a schedule by hand. Each acts with one statement, which waits for a round that fires
it.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

from django.db import connections, router
from django.db.models.functions import Now

from ..exceptions import JobExists
from ..jobs.enqueue import other_job
from ..models import Schedule
from ..tasks.task import find_task
from .policy import call_keys, known_policy

if TYPE_CHECKING:
    from ..models import Job
    from ..postgres.session import Session

__all__ = ["ScheduleNews", "pause", "require", "resume", "run_now"]


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

    This is like `enqueue` if the task is unique: it may return the other job (see ``job.enqueue_outcome``),
    or raise `JobExists`, `UniqueKeyError` or `InvalidKey`.
    """
    alias = using or router.db_for_write(Schedule)
    schedule = Schedule.objects.using(alias).filter(name=name).first()
    if schedule is None:
        require(name, alias)
    else:
        _refresh_policy(schedule, alias)
    with connections[alias].cursor() as cursor:
        cursor.execute("SELECT id, outcome FROM pgqueue_run_schedule_v1(%s)", (name,))
        pk, outcome = cursor.fetchone()
    if outcome == "existing" and schedule is not None and _raises(schedule):
        raise JobExists(f"Job {pk} has the unique key of the schedule {name!r}.", pk)
    return other_job(alias, pk, outcome)


def _refresh_policy(schedule: Schedule, alias: str) -> None:
    """Store the keys of the call as they are now, if this process can import the task.

    Race: somebody may change the call at this moment. Then the policy of the old one is not written.
    """
    call = {"task_path": schedule.task_path, "args": schedule.args, "kwargs": schedule.kwargs}
    policy = known_policy(**call)
    if policy is not None and "problem" in policy:
        call_keys(
            find_task(schedule.task_path), schedule.args, schedule.kwargs
        )  # raises what `enqueue` raises
    if policy is None or policy == schedule.policy:
        return
    schedule.policy = policy
    Schedule.objects.using(alias).filter(pk=schedule.pk, **call).update(policy=policy)


def _raises(schedule: Schedule) -> bool:
    options = (schedule.policy or {}).get("options") or {}
    return bool(options.get("on_conflict") == "raise")


def require(name: str, alias: str) -> None:
    """Raise ``Schedule.DoesNotExist``, with a similar name, if there is no such schedule."""
    known = Schedule.objects.using(alias)
    if known.filter(name=name).exists():
        return
    names = list(known.values_list("name", flat=True)[:1000])
    near = get_close_matches(name, names, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    raise Schedule.DoesNotExist(f"There is no schedule {name!r} in the database {alias!r}.{hint}")


# ----------------------------------------------------------------------------
# How a supervisor hears at once that somebody has made, edited or resumed a schedule.
#
# Without it, a tick that is due within the next two seconds could be that late, because only a heartbeat
# asks when the next tick is due. A trigger sends the notification (``sql/schedule_changed_v1.sql``). The
# supervisor listens only if there are schedules, so that it costs an installation without them nothing; the
# first one is noticed by a heartbeat. Behind a transaction pooler nobody listens, and heartbeats notice
# every change.


class ScheduleNews:
    """What a supervisor hears on its session."""

    def __init__(self) -> None:
        self._session: Session | None = None

    def listen(self, session: Session) -> bool:
        """Listen in this session. Return whether it has begun now: what changed before was not heard."""
        if session is self._session or session.pooled:
            return False
        channel = session.value("SELECT pgqueue_channel_v1() || '_schedules'")
        session.connection.execute(f'LISTEN "{channel}"')
        self._session = session
        return True

    def heard(self, session: Session) -> bool:
        """Return whether there is news since the last call."""
        return session is self._session and bool(session.notifications())

    def files(self, session: Session | None) -> tuple[int, ...]:
        """Return the file that becomes readable when there is news, if there is one."""
        return () if session is None or session is not self._session else (session.connection.fileno(),)
