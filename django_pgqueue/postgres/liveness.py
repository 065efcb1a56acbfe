"""Connections that do not wait forever for an answer which will never come.

    sent --answered--> done
    sent --silent for some seconds--> asked: is the session at work? --yes--> sent, again; --no--> given up

If a proxy or a firewall forgets a connection and goes on to acknowledge what arrives, keepalives are answered
and TCP notices nothing. But a server may also be slow. So another connection asks whether the session is at
work. A session that has answered, or has never seen the statement, is not. It is ended, since it may hold
locks. If nobody who knows the session can be asked, a worker gives up its own connection
(``PatientConnection``), while a task goes on to wait (``be_patient``): its statement may take hours.

Behind a pooler the session is not known by its number, and a statement may have to wait for a free one. There
a worker gives up after ``PATIENCE_POOLED``, when the server would have cancelled any statement of it.
"""

from __future__ import annotations

import select
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import ref

import psycopg
from psycopg.pq import TransactionStatus

from .. import conf

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from weakref import ReferenceType

    #: Called with the socket of the silent connection. Returns None if nobody knows.
    Question = Callable[[int], bool | None]


PATIENCE = 12.0
"""Most seconds until the question. An idle worker sends a statement every 11 s, and notices within 30 s."""
PATIENCE_POOLED = 75.0
"""A statement of a worker is cancelled after 60 s."""
PATIENCE_OTHER = 3.0
"""Seconds in which the other connection must be open, and as many until its answer."""

ON_ITS_WAY = 1.0
"""Seconds in which the answer of a session that is not at work must arrive."""

#: Whatever the role of the session may see. The host of the address may stand for several servers, and the
#: role may have been assumed: then the session does not see its own row in pg_stat_activity.
_KNOWN_BY_SQL = """
    SELECT extract(epoch FROM pg_postmaster_start_time())::text, extract(epoch FROM clock_timestamp())::text
"""
#: Race: a session that has ended may have left its number to another, which began later.
_OURS = "pid = %(pid)s AND (backend_start IS NULL OR extract(epoch FROM backend_start) <= %(told)s::numeric)"
#: True or false; NULL: this is another server. A session that waits for its client to read or to write is not
#: at work. If the row is hidden, nobody knows.
_AT_WORK_SQL = f"""
    SELECT CASE WHEN extract(epoch FROM pg_postmaster_start_time())::text = %(server)s THEN coalesce((
        SELECT NOT (coalesce(state, '') LIKE 'idle%%'
            OR coalesce(state = 'active' AND wait_event_type = 'Client', false))
        FROM pg_stat_activity WHERE {_OURS}
    ), false) END
"""  # noqa: S608 - consists of constants
_END_SQL = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {_OURS}"  # noqa: S608 - as above


def _nobody(socket: int) -> None:
    """Ask nobody."""


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
    ask: Question = staticmethod(_nobody)

    def wait(self, gen: Generator[Any, Any, Any], *args: Any, **kwargs: Any) -> Any:
        """Wait for what psycopg has sent. All its statements and pipelines do so here."""
        return super().wait(_watched(self, gen, self.patience, self._is_lost), *args, **kwargs)

    def not_known_yet(self, parameters: dict[str, Any]) -> None:
        """Until it is known whether there is a pooler, only trivial statements are sent."""
        self.ask = partial(_is_answered_by_nobody, parameters)
        self.patience = patience()

    def found_direct(self, parameters: dict[str, Any]) -> None:
        """There is no pooler in between."""
        self.ask = ask(self, parameters)

    def found_pooled(self) -> None:
        """There is a pooler in between."""
        self.ask = _nobody
        self.patience = PATIENCE_POOLED

    def _is_lost(self, socket: int) -> bool:
        return not self.ask(socket)


def be_patient(connection: psycopg.Connection[Any], parameters: dict[str, Any]) -> None:
    """Let a direct connection of other code, made with these parameters, raise ``SilentServerError`` if its
    session is not at work. It is not referred to, so that it ends as before.
    """
    question = ask(connection, parameters)
    wait = partial(_wait, ref(connection), lambda socket: question(socket) is False)
    connection.wait = wait  # type: ignore[method-assign]


def _wait(
    connection: ReferenceType[psycopg.Connection[Any]],
    is_lost: Callable[[int], bool],
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
    is_lost: Callable[[int], bool],
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
                # Whoever waits for notifications waits for no answer.
                is_active = connection.pgconn.transaction_status == TransactionStatus.ACTIVE
                if is_active and is_lost(connection.pgconn.socket):
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


def ask(connection: psycopg.Connection[Any], parameters: dict[str, Any]) -> Question:
    """Return what asks whether the session of a direct connection is at work, and ends it otherwise."""
    row = connection.execute(_KNOWN_BY_SQL).fetchone()
    assert row is not None
    return partial(_is_at_work, parameters, KnownBy(connection.info.backend_pid, *row))


class KnownBy(NamedTuple):
    """What a session is recognized by."""

    pid: int
    server: str
    """When the server started, in seconds of the epoch."""
    told: str
    """The time of the server at which the session existed."""


def _is_at_work(parameters: dict[str, Any], known_by: KnownBy, socket: int) -> bool | None:
    """Ask on another connection. Return None if nobody answers who knows."""
    answer: bool | None = _on_another(parameters, partial(_look_at, known_by, socket))
    return answer


def _look_at(known_by: KnownBy, socket: int, other: PatientConnection) -> bool | None:
    """Look whether a session is at work, and end it otherwise.

    Race: its answer may be on its way, or may have come since the other connection was begun.
    """
    given = known_by._asdict()
    # The role that has logged in may see, and end, the sessions of the same login.
    other.execute("SET ROLE NONE")
    is_at_work = _value(other, _AT_WORK_SQL, given)
    if is_at_work is False:
        if _is_readable(socket, ON_ITS_WAY):
            return True
        is_at_work = _value(other, _AT_WORK_SQL, given)
    if is_at_work is False:
        other.execute(_END_SQL, given)
    return is_at_work


def _is_answered_by_nobody(parameters: dict[str, Any], socket: int) -> bool:
    """Return whether a trivial statement may still be answered: those of others are not answered either."""
    return _on_another(parameters, lambda other: _value(other, "SELECT true", {})) is None


def _on_another(parameters: dict[str, Any], question: Callable[[PatientConnection], bool | None]) -> Any:
    """Return what this finds out on another connection, or None if nobody answers."""
    more = {"connect_timeout": int(PATIENCE_OTHER), "autocommit": True}
    try:
        other = PatientConnection.connect(**{**parameters, **more})
    except psycopg.Error:
        return None
    other.patience = PATIENCE_OTHER
    try:
        return question(other)
    except psycopg.Error:
        return None
    finally:
        other.close()


def _value(connection: PatientConnection, query: str, given: dict[str, Any]) -> bool | None:
    row = connection.execute(query, given).fetchone()
    return None if row is None else row[0]


def _is_readable(socket: int, seconds: float) -> bool:
    poll = select.poll()  # unlike select(), it takes any number of a file
    poll.register(socket, select.POLLIN)
    return bool(poll.poll(1000 * seconds))


# ----------------------------------------------------------------------------
# How both ends of a connection notice that the other end has vanished without a word.
#
# Linux by itself takes two hours for that. Each end sends keepalives, and gives up when they are not
# acknowledged, or when data is not: within a few seconds of ``LEASE``, and within 25 seconds at most. So the
# locks of a worker that is cut off are free soon after its jobs are. What is configured comes first.
#
# On Linux, the limit for data also ends a connection whose other end lives but does not read. A worker
# always reads. A task may take its time between two rows of a stream or a COPY, so there the limit is
# ``LEASE``, after which its job may run elsewhere and needs the locks, or a minute.

_IDLE, _INTERVAL, _COUNT, _UNACKNOWLEDGED, _UNACKNOWLEDGED_OF_TASKS = 10, 5, 3, 10, 60

#: Unless the server, the database, the role or OPTIONS set them already. A server that waits for a lock does
#: not look at its client by itself. Systems other than Linux may not allow that, and raise an error.
#: Behind a pooler the session belongs to everybody, and the connection ends at the pooler.
_TELL_SERVER = """
    SELECT pg_backend_pid() = %(pid)s, (
        SELECT count(set_config(name, given, false))
        FROM (VALUES ('tcp_keepalives_idle', %(idle)s), ('tcp_keepalives_interval', %(interval)s),
            ('tcp_keepalives_count', %(count)s), ('tcp_user_timeout', %(unacknowledged)s),
            ('client_connection_check_interval', %(look)s)) AS ours (name, given)
        JOIN pg_settings USING (name)
        WHERE source = 'default' AND pg_backend_pid() = %(pid)s
            AND (name <> 'client_connection_check_interval' OR version() LIKE '%%linux%%')
    )
"""


def client_parameters(*, of_task: bool = False) -> dict[str, int]:
    """Return the parameters of libpq for this end. An old libpq has fewer."""
    idle, interval, milliseconds = _times(of_task=of_task)
    given = {
        "keepalives_idle": idle, "keepalives_interval": interval, "keepalives_count": _COUNT,
        "tcp_user_timeout": milliseconds,
    }  # fmt: skip
    known = {option.keyword.decode() for option in psycopg.pq.Conninfo.get_defaults()}
    return {name: value for name, value in given.items() if name in known}


def tell_server(connection: psycopg.Connection[Any], *, of_task: bool = False) -> bool:
    """Set the parameters of the server's end for this session, in one statement. Return whether it is the
    session of this connection. If there is a pooler in between, nothing is set.
    """
    idle, interval, milliseconds = _times(of_task=of_task)
    given = {
        "idle": str(idle), "interval": str(interval), "count": str(_COUNT),
        "unacknowledged": str(milliseconds), "look": str(1000 * idle), "pid": connection.info.backend_pid,
    }  # fmt: skip
    row = connection.execute(_TELL_SERVER, given).fetchone()
    return row is not None and row[0]


def _times(*, of_task: bool) -> tuple[int, int, int]:
    """Return the seconds until the first keepalive, those between two, and the milliseconds for data."""
    lease = conf.current().lease
    idle, interval = min(_IDLE, int(lease / 3)), min(_INTERVAL, int(lease / 6))
    most, part = (_UNACKNOWLEDGED_OF_TASKS, 1) if of_task else (_UNACKNOWLEDGED, 2)
    return max(1, idle), max(1, interval), int(1000 * max(1.0, min(most, lease / part)))
