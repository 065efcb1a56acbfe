"""Connections that do not wait forever for an answer which will never come.

    sent --answered--> done
    sent --silent for some seconds--> asked: is the session at work? --yes--> sent, again; --no--> given up

If a proxy or a firewall forgets a connection and goes on to acknowledge what arrives, keepalives are answered
and TCP notices nothing. But a server may also be slow. So another connection asks whether the session is at
work. A session that has answered, or has never seen the statement, is not. It is ended, since it may hold
locks. If nobody can be asked, a worker gives up its own connection (``PatientConnection``), while a task goes
on to wait (``be_patient``): its statement may take hours.

Behind a pooler the session is not known by its number, and a statement may have to wait for a free one. There
a worker gives up after ``PATIENCE_POOLED``, when the server would have cancelled any statement of it.
"""

from __future__ import annotations

from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any
from weakref import ref

import psycopg
from psycopg.pq import TransactionStatus

from . import conf

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from weakref import ReferenceType

__all__ = ["PatientConnection", "SilentServerError", "ask", "be_patient", "patience"]

PATIENCE = 12.0
"""Most seconds until the question. An idle worker sends a statement every 11 s, and notices within 30 s."""
PATIENCE_POOLED = 75.0
"""A statement of a worker is cancelled after 60 s."""
PATIENCE_OTHER = 3.0
"""Seconds in which the other connection must be open, and as many until its answer."""

_STARTED_SQL = "SELECT extract(epoch FROM backend_start)::text FROM pg_stat_activity WHERE pid = %s"

#: A session that waits for its client to read or to write is not at work. Races: one that has just become
#: idle may have sent its answer. One that has ended may have left its number to another, which began later.
_AT_WORK_SQL = """
    SELECT CASE
        WHEN state LIKE 'idle%%' AND state_change < clock_timestamp() - interval '1 s'
            OR state = 'active' AND wait_event_type = 'Client' THEN NOT pg_terminate_backend(pid)
        ELSE true END
    FROM pg_stat_activity WHERE pid = %s AND extract(epoch FROM backend_start)::text = %s
"""


class SilentServerError(psycopg.OperationalError):
    """The answer to a statement will not come. The connection is closed."""

    def __init__(self, seconds: float) -> None:
        super().__init__(
            f"no answer within {seconds:.0f} s, and the session is not at work: the connection was lost "
            "without a word. If this happens repeatedly, check whether there is a proxy or firewall in "
            "between that forgets connections"
        )


class PatientConnection(psycopg.Connection[Any]):
    """Raises ``SilentServerError`` if the server is silent for ``patience`` seconds, and ``ask`` then returns
    False or None.
    """

    patience = PATIENCE_POOLED
    ask: Callable[[], bool | None] = bool

    def wait(self, gen: Generator[Any, Any, Any], *args: Any, **kwargs: Any) -> Any:
        """Wait for what psycopg has sent. All its statements and pipelines do so here."""
        return super().wait(_watched(self, gen, self.patience, self._is_lost), *args, **kwargs)

    def not_known_yet(self, parameters: dict[str, Any]) -> None:
        """Until it is known whether there is a pooler, only trivial statements are sent."""
        self.ask = partial(_nobody_is_answered, parameters)
        self.patience = patience()

    def found_direct(self, parameters: dict[str, Any]) -> None:
        """There is no pooler in between."""
        self.ask = ask(self, parameters)

    def found_pooled(self) -> None:
        """There is a pooler in between."""
        self.ask = bool
        self.patience = PATIENCE_POOLED

    def _is_lost(self) -> bool:
        return not self.ask()


def be_patient(connection: psycopg.Connection[Any], parameters: dict[str, Any]) -> None:
    """Let somebody else's direct connection, made with these parameters, raise ``SilentServerError`` if its
    session is not at work. It is not referred to, so that it ends as before.
    """
    question = ask(connection, parameters)
    wait = partial(_wait, ref(connection), lambda: question() is False)
    connection.wait = wait  # type: ignore[method-assign]


def _wait(
    connection: ReferenceType[psycopg.Connection[Any]],
    is_lost: Callable[[], bool],
    gen: Generator[Any, Any, Any],
    *args: Any,
    **kwargs: Any,
) -> Any:
    ours = connection()
    assert ours is not None
    return type(ours).wait(ours, _watched(ours, gen, patience(), is_lost), *args, **kwargs)


def _watched(
    connection: psycopg.Connection[Any],
    gen: Generator[Any, Any, Any],
    seconds: float,
    is_lost: Callable[[], bool],
) -> Generator[Any, Any, Any]:
    look_at = 0.0
    try:
        state = next(gen)
        while True:
            ready = yield state
            if ready:
                look_at = 0.0
            elif not look_at:  # while nothing arrives, psycopg looks ten times a second
                look_at = monotonic() + seconds
            elif monotonic() >= look_at:
                # Somebody who waits for notifications waits for no answer.
                if connection.pgconn.transaction_status == TransactionStatus.ACTIVE and is_lost():
                    # Before the error: leaving a pipeline would wait for its answers once more.
                    connection.close()
                    raise SilentServerError(monotonic() - look_at + seconds)
                look_at = monotonic() + seconds
            state = gen.send(ready)
    except StopIteration as end:
        return end.value


def patience() -> float:
    """Return the seconds until the question. After it, there must be time to connect within ``LEASE``."""
    return max(1.0, min(PATIENCE, 0.4 * conf.current().lease))


def ask(connection: psycopg.Connection[Any], parameters: dict[str, Any]) -> Callable[[], bool | None]:
    """Return what asks whether the session of a direct connection is at work, and ends it otherwise."""
    pid = connection.info.backend_pid
    row = connection.execute(_STARTED_SQL, (pid,)).fetchone()
    return partial(_is_at_work, parameters, pid, None if row is None else row[0])


def _is_at_work(parameters: dict[str, Any], pid: int, started: str | None) -> bool | None:
    """Ask on another connection. Return None if nobody answers."""
    rows = _other_rows(parameters, _AT_WORK_SQL, (pid, started))
    return None if rows is None else rows == [(True,)]


def _nobody_is_answered(parameters: dict[str, Any]) -> bool:
    """Return whether a trivial statement may still be answered: those of others are not answered either."""
    return _other_rows(parameters, "SELECT 1", ()) is None


def _other_rows(parameters: dict[str, Any], query: str, given: tuple[Any, ...]) -> list[Any] | None:
    more = {"connect_timeout": int(PATIENCE_OTHER), "autocommit": True}
    try:
        other = PatientConnection.connect(**{**parameters, **more})
    except psycopg.Error:
        return None
    other.patience = PATIENCE_OTHER
    try:
        return other.execute(query, given).fetchall()
    except psycopg.Error:
        return None
    finally:
        other.close()
