"""The worker's own connection: psycopg, in autocommit, apart from Django's.

On a direct path the session is set up once: timeouts, generic plans for the prepared statements. Behind a
transaction pooler, which shows itself because ``pg_backend_pid()`` is not the process that the connection was
told of, no state of a session may be used: statements are not prepared, and timeouts and the role are set in
each transaction.

A worker needs the primary: a standby is refused, with an error of its own. A connection whose other end has
vanished is found dead within half a minute, by both ends: the server frees the locks of a worker by that.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import psycopg
from django.db import connections
from psycopg.types.string import TextLoader

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["LOST_CONNECTION", "Session", "StandbyError", "connect", "is_standby"]

logger = logging.getLogger(__name__)

#: Milliseconds. A statement of the worker takes milliseconds; one that takes a minute is in the way of all,
#: and while one waits for a lock the process does nothing else.
STATEMENT_TIMEOUT = 60_000
LOCK_TIMEOUT = 2_000

#: How the driver notices that the server has vanished, unless OPTIONS say otherwise: within 10 s while
#: something is sent (milliseconds), within 25 s in silence (seconds). Of no effect on a Unix socket.
_HALF_OPEN = {
    "keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3, "tcp_user_timeout": 10_000,
}  # fmt: skip

#: How the server notices that the worker has vanished, unless somebody has configured it.
_HALF_OPEN_SERVER = """
    SELECT set_config(name, given, false)
    FROM (VALUES ('tcp_keepalives_idle', '10'), ('tcp_keepalives_interval', '5'),
        ('tcp_keepalives_count', '3'), ('tcp_user_timeout', '10000')) AS ours (name, given)
    JOIN pg_settings USING (name) WHERE source = 'default'
"""

_SETTINGS = {
    "statement_timeout": str(STATEMENT_TIMEOUT),
    "lock_timeout": str(LOCK_TIMEOUT),
    # But for what is reported. What a crash of the server forgets then is claimed, beaten or recovered again.
    "synchronous_commit": "off",
    # Times come as text, which is compared as text.
    "TimeZone": "UTC",
    "DateStyle": "ISO",
}
#: From PostgreSQL 17 on: the end of a transaction in which the process was stopped. Of two equal times the
#: server heeds only this one, and it ends the session, not just the statement: so it is the longer one.
_TRANSACTION_TIMEOUT = {"transaction_timeout": str(2 * STATEMENT_TIMEOUT)}


class StandbyError(psycopg.OperationalError):
    """The server is a standby."""

    def __init__(self) -> None:
        super().__init__("this server is a standby: a worker needs the primary, and waits for it")


#: What a worker waits out, over a new connection.
LOST_CONNECTION = (
    psycopg.OperationalError,
    psycopg.InterfaceError,
    psycopg.errors.ReadOnlySqlTransaction,  # the primary has become a standby, or read-only
)


class Session:
    """A connection and what it can do."""

    def __init__(self, connection: psycopg.Connection[Any], *, pooled: bool, commit: str, role: str) -> None:
        self.connection = connection
        self.pooled = pooled
        self.holds_lock = False
        """Whether it holds the lock that says that its worker lives."""
        self._commit = commit  # as the server is configured
        self._role = role

    def set_up(self) -> None:
        """Set up what stays as it is in the session; behind a pooler that goes with each transaction."""
        self.connection.execute(*_set(self._settings(), local=False))
        self.connection.execute(_HALF_OPEN_SERVER)
        self.connection.execute("SET plan_cache_mode TO force_generic_plan")
        self.connection.execute("SET default_transaction_isolation TO 'read committed'")

    def rows(self, query: str, parameters: Any = None) -> list[Any]:
        """The rows that one statement returns."""
        (rows,) = self.run((query, parameters))
        return rows

    def row(self, query: str, parameters: Any = None) -> Any:
        """The only row that it returns."""
        (row,) = self.rows(query, parameters)
        return row

    def value(self, query: str, parameters: Any = None) -> Any:
        """The only value that it returns."""
        (value,) = self.row(query, parameters)
        return value

    def run(self, *statements: tuple[str, Any], durable: bool = False) -> list[list[Any]]:
        """Run statements in one round trip and one transaction; the rows of each.

        ``durable``: the commit waits for the disk, as far as the server is configured for that, and so do all
        that came before it.

        Race: several statements leave the process one by one, and the end of their transaction after them. A
        process that is stopped in between (SIGSTOP, a frozen container) keeps their locks. A single statement
        leaves together with the end. So what everybody depends on, as beats and recovery, is a single one;
        for the rest, the session of a worker that is found dead is ended (``end_sessions_v1.sql``).
        """
        settings = self._settings() if self.pooled else {}
        if durable:
            settings["synchronous_commit"] = self._commit
        head = [_set(settings, local=True)] if settings else []
        if self.pooled:
            return self._run_in_one_message(*head, *statements)[len(head) :]
        if not head and len(statements) == 1:
            return [_rows(self._execute(*statements[0]))]
        with self.connection.pipeline():
            cursors = [self._execute(*statement) for statement in (*head, *statements)]
        return [_rows(cursor) for cursor in cursors[len(head) :]]

    def _execute(self, query: str, parameters: Any) -> psycopg.Cursor[Any]:
        return self.connection.execute(query, parameters, prepare=True)

    def _run_in_one_message(self, *statements: tuple[str, Any]) -> list[list[Any]]:
        """By the simple protocol, where the text holds the parameters and all of it is one transaction.

        Race: a pipeline's last message, a Flush, comes after the end of the transaction. A pooler may have
        taken the server's connection back by then; it gives out one for that message (pgbouncer 1.18 does),
        to which nothing is ever answered. So it would stay with a worker that sleeps.
        """
        with psycopg.ClientCursor(self.connection) as cursor:
            cursor.execute("; ".join(cursor.mogrify(*statement) for statement in statements))
            answers = [_rows(cursor)]
            while cursor.nextset():
                answers.append(_rows(cursor))
        return answers

    def _settings(self) -> dict[str, str]:
        newest = _TRANSACTION_TIMEOUT if self.connection.info.server_version >= 170_000 else {}
        return {**_SETTINGS, **newest, **({"role": self._role} if self._role else {})}

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
    """A new session of the database ``alias``.

    Raises ``StandbyError`` where the server is a standby, another ``psycopg.OperationalError`` where there is
    none.
    """
    connection = psycopg.connect(**_parameters(alias), autocommit=True)
    try:
        role = connections[alias].settings_dict["OPTIONS"].get("assume_role") or ""
        return _enter(connection, role)
    except BaseException:
        connection.close()
        raise


def is_standby(alias: str) -> bool:
    """Whether a standby answers where ``target_session_attrs`` makes the driver refuse one by itself."""
    parameters = _parameters(alias)
    if parameters.pop("target_session_attrs", None) is None:
        return False
    try:
        with psycopg.connect(**parameters, autocommit=True) as connection:
            row = connection.execute("SELECT pg_is_in_recovery()").fetchone()
    except psycopg.OperationalError:
        return False
    return row == (True,)


def _parameters(alias: str) -> dict[str, Any]:
    """Those of Django's own connections, and what a worker needs beside them."""
    parameters = connections[alias].get_connection_params()
    for name in ("cursor_factory", "context", "autocommit"):
        parameters.pop(name, None)
    known = {option.keyword.decode() for option in psycopg.pq.Conninfo.get_defaults()}
    defaults = {"application_name": "pgqueue worker", "connect_timeout": 10, **_HALF_OPEN}
    return {
        **{name: value for name, value in defaults.items() if name in known},  # an old libpq knows fewer
        **parameters,
        "prepare_threshold": None,
    }


def _enter(connection: psycopg.Connection[Any], role: str) -> Session:
    for name in ("jsonb", "timestamptz"):
        # As text: whoever needs a value converts it, on the thread that runs the job.
        connection.adapters.register_loader(name, TextLoader)
    about = connection.execute(
        "SELECT pg_backend_pid(), pg_is_in_recovery(), current_setting('synchronous_commit')"
    ).fetchone()
    assert about is not None
    backend_pid, in_recovery, commit = about
    if in_recovery:
        raise StandbyError
    pooled = backend_pid != connection.info.backend_pid
    session = Session(connection, pooled=pooled, commit=commit, role=role)
    if not pooled:
        session.set_up()
    return session


def _rows(cursor: psycopg.Cursor[Any]) -> list[Any]:
    return cursor.fetchall() if cursor.description else []


def _set(settings: dict[str, str], *, local: bool) -> tuple[str, list[Any]]:
    """The statement that sets them, ``local``: in this transaction only."""
    calls = ", ".join(["set_config(%s, %s, %s)"] * len(settings))
    return f"SELECT {calls}", [each for setting in settings.items() for each in (*setting, local)]
