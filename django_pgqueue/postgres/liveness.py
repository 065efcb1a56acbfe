"""How both ends of a connection notice that the other end has vanished.

Keepalives: Linux by itself takes two hours. Each end sends keepalives, and gives up when they are not
acknowledged, or when data is not: within a few seconds of ``LEASE``, and within 25 seconds at most, so the
locks of a worker that is cut off are free soon after its jobs are. What is configured comes first. On Linux,
the limit for data also ends a connection whose other end does not read. A task may take its time between two
rows of a stream or a COPY, so there the limit is ``LEASE``, or a minute.

Deadline: if a proxy or a firewall forgets a connection and goes on to acknowledge what arrives, TCP notices
nothing. The server cancels each statement of a worker's own session after a minute, so an answer that has not
come by then will not come. The statements of tasks may take hours, so they have no deadline.
"""

from __future__ import annotations

from collections.abc import Generator
from time import monotonic
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus

from .. import conf
from . import sql_of

DEADLINE = 75.0  # seconds; the server cancels a statement after 60 s (``session.STATEMENT_TIMEOUT``)

_IDLE, _INTERVAL, _COUNT, _UNACKNOWLEDGED, _UNACKNOWLEDGED_OF_TASKS = 10, 5, 3, 10, 60

_SET_SERVER_SQL = sql_of(__file__, "keepalives")


def client_parameters(*, of_task: bool = False) -> dict[str, int]:
    """Return the parameters of libpq for this end. An old libpq has fewer."""
    idle, interval, milliseconds = _times(of_task=of_task)
    given = {
        "keepalives_idle": idle, "keepalives_interval": interval, "keepalives_count": _COUNT,
        "tcp_user_timeout": milliseconds,
    }  # fmt: skip
    known = {option.keyword.decode() for option in psycopg.pq.Conninfo.get_defaults()}
    return {name: value for name, value in given.items() if name in known}


def set_server_keepalive(connection: psycopg.Connection[Any], *, of_task: bool = False) -> None:
    """Set the parameters of the server's end for this session, unless there is a pooler in between."""
    idle, interval, milliseconds = _times(of_task=of_task)
    given = {
        "idle": str(idle), "interval": str(interval), "count": str(_COUNT),
        "unacknowledged": str(milliseconds), "look": str(1000 * idle), "pid": connection.info.backend_pid,
    }  # fmt: skip
    connection.execute(_SET_SERVER_SQL, given)


def _times(*, of_task: bool) -> tuple[int, int, int]:
    """Return the seconds until the first keepalive, those between two, and the milliseconds for data."""
    lease = conf.current().lease
    idle, interval = min(_IDLE, int(lease / 3)), min(_INTERVAL, int(lease / 6))
    most, part = (_UNACKNOWLEDGED_OF_TASKS, 1) if of_task else (_UNACKNOWLEDGED, 2)
    return max(1, idle), max(1, interval), int(1000 * max(1.0, min(most, lease / part)))


class SilentServerError(psycopg.OperationalError):
    """The answer to a statement will not come. The connection is closed."""

    def __init__(self, seconds: float) -> None:
        super().__init__(
            f"no answer within {seconds:.0f} s, when the server would have cancelled the statement: the "
            "connection was lost unnoticed. If this happens repeatedly, check whether there is a proxy or "
            "firewall in between that forgets connections"
        )


class BoundedConnection(psycopg.Connection[Any]):
    """Raises ``SilentServerError`` if nothing arrives within ``DEADLINE`` while a statement runs."""

    def wait(self, gen: Generator[Any, Any, Any], *args: Any, **kwargs: Any) -> Any:
        """Wait for what psycopg has sent. All its statements and pipelines do so here."""
        return super().wait(self._bounded(gen), *args, **kwargs)

    def _bounded(self, gen: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
        silent_since = None
        try:
            state = next(gen)
            while True:
                ready = yield state
                # Whoever waits for notifications waits for no answer.
                if ready or self.pgconn.transaction_status != TransactionStatus.ACTIVE:
                    silent_since = None
                elif silent_since is None:  # while nothing arrives, psycopg looks ten times a second
                    silent_since = monotonic()
                elif monotonic() - silent_since >= DEADLINE:
                    # Before the error: leaving a pipeline would wait for its answers once more.
                    self.close()
                    raise SilentServerError(DEADLINE)
                state = gen.send(ready)
        except StopIteration as end:
            return end.value
