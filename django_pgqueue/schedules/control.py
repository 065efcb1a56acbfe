"""Enqueue a job of a schedule by hand, and how a supervisor hears of what people do with schedules."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.db import connections

from ..exceptions import JobExists
from ..jobs.enqueue import other_job
from ..models import Schedule
from ..tasks.task import find_task
from .policy import call_keys, known_policy

if TYPE_CHECKING:
    from ..models import Job
    from ..postgres.session import Session

__all__ = ["ScheduleNews", "enqueue_now"]


def enqueue_now(schedule: Schedule, alias: str) -> Job:
    """Enqueue one job of a schedule, as ``Schedule.enqueue`` does."""
    stored = Schedule.objects.using(alias).get(pk=schedule.pk)
    _refresh_policy(stored, alias)
    with connections[alias].cursor() as cursor:
        cursor.execute("SELECT id, outcome FROM pgqueue_enqueue_schedule_v1(%s)", (stored.pk,))
        pk, outcome = cursor.fetchone()
    if outcome == "existing" and _raises(stored):
        raise JobExists(f"Job {pk} has the unique key of the schedule {stored.pk!r}.", pk)
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


# ----------------------------------------------------------------------------
# How a supervisor hears at once that somebody has made, edited or resumed a schedule.
#
# Without it, a run that is due within the next two seconds could be that late, because only a heartbeat
# asks when the next run is due. A trigger sends the notification (``sql/schedule_changed_v1.sql``). The
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
