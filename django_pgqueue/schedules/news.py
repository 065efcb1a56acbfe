"""How a supervisor hears at once that a user has made, edited or resumed a schedule.

Without it, a run that is due within the next two seconds could be that late, because only a heartbeat
asks when the next run is due. A trigger sends the notification (``sql/schedule_changed_v1.sql``). The
supervisor listens only if there are schedules, so that it costs an installation without them nothing; the
first one is noticed by a heartbeat. Behind a transaction pooler nobody listens, and heartbeats notice
every change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..postgres.session import Session


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
