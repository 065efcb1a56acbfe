"""The worker's own connection: psycopg, in autocommit, apart from Django's.

On a direct path the session is set up once: timeouts, generic plans for the prepared statements. Behind a
transaction pooler, which shows itself because ``pg_backend_pid()`` is not the process that the connection was
told of, no state of a session may be used: statements are not prepared, and timeouts are set in each
transaction.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import psycopg
from django.db import connections
from psycopg import sql
from psycopg.types.string import TextLoader

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Session", "connect"]

logger = logging.getLogger(__name__)

#: Milliseconds. A statement of the worker takes milliseconds; one that takes a minute is in the way of all.
STATEMENT_TIMEOUT = 60_000
LOCK_TIMEOUT = 10_000

_SETTINGS = (
    f"SELECT set_config('statement_timeout', '{STATEMENT_TIMEOUT}', %(local)s),"
    f" set_config('lock_timeout', '{LOCK_TIMEOUT}', %(local)s),"
    # Times come as text, which is compared as text.
    " set_config('TimeZone', 'UTC', %(local)s), set_config('DateStyle', 'ISO', %(local)s)"
)


class Session:
    """A connection and what it can do."""

    def __init__(self, connection: psycopg.Connection[Any], *, pooled: bool) -> None:
        self.connection = connection
        self.pooled = pooled

    def run(self, *statements: tuple[str, Any], durable: bool = True) -> list[list[Any]]:
        """Run statements in one round trip and one transaction; the rows of each.

        ``durable=False``: the commit does not wait for the disk.
        """
        head: list[tuple[str, Any]] = []
        if self.pooled:
            head.append((_SETTINGS, {"local": True}))
        if not durable:
            head.append(("SELECT set_config('synchronous_commit', 'off', true)", None))
        cursors = []
        with self.connection.pipeline():
            for query, parameters in [*head, *statements]:
                cursors.append(self.connection.execute(query, parameters, prepare=not self.pooled))
        return [cursor.fetchall() if cursor.description else [] for cursor in cursors[len(head) :]]

    def notifications(self) -> Sequence[psycopg.Notify]:
        """What has arrived since the last call; does not wait."""
        return list(self.connection.notifies(timeout=0))

    def close(self) -> None:
        """Close the connection, whatever state it is in."""
        try:
            self.connection.close()
        except psycopg.Error:  # pragma: no cover - the server is gone, so is the connection
            logger.debug("closing the connection failed", exc_info=True)


def connect(alias: str) -> Session:
    """A new session of the database ``alias``. Raises ``psycopg.OperationalError`` where there is none."""
    wrapper = connections[alias]
    parameters = wrapper.get_connection_params()
    for name in ("cursor_factory", "context", "autocommit"):
        parameters.pop(name, None)
    parameters["prepare_threshold"] = None
    parameters.setdefault("application_name", "pgqueue worker")
    parameters.setdefault("connect_timeout", 10)
    connection = psycopg.connect(**parameters, autocommit=True)
    for name in ("jsonb", "timestamptz"):
        # As text: whoever needs a value converts it, on the thread that runs the job.
        connection.adapters.register_loader(name, TextLoader)
    about = connection.execute("SELECT pg_backend_pid(), pg_is_in_recovery()").fetchone()
    assert about is not None
    backend_pid, is_standby = about
    if is_standby:
        connection.close()
        raise psycopg.OperationalError("this server is a standby: a worker needs the primary")
    session = Session(connection, pooled=backend_pid != connection.info.backend_pid)
    role = wrapper.settings_dict["OPTIONS"].get("assume_role")
    if role:
        connection.execute(sql.SQL("SET ROLE {}").format(sql.Identifier(role)))
    if not session.pooled:
        connection.execute(_SETTINGS, {"local": False})
        connection.execute("SET plan_cache_mode TO force_generic_plan")
        connection.execute("SET default_transaction_isolation TO 'read committed'")
    return session
