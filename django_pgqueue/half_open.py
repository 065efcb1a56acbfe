"""How both ends of a connection notice that the other end has vanished without a word.

Linux by itself takes two hours for that. Each end sends keepalives, and gives up when they are not
acknowledged, or when data is not: within a few seconds of ``LEASE``, and within 25 seconds at most. So the
locks of a worker that is cut off are free soon after its jobs are. What is configured comes first.

On Linux, the limit for data also ends a connection whose other end lives but does not read. A worker always
reads. A task may take its time between two rows of a stream or a COPY, so there the limit is ``LEASE``, after
which its job may run elsewhere and needs the locks, or a minute.
"""

from __future__ import annotations

from typing import Any

import psycopg

from . import conf

__all__ = ["client_parameters", "tell_server"]

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
