"""The worker's own psycopg connection in autocommit mode, separate from Django's connections.

On a direct connection the session is set up once (timeouts, generic plans), and its statements are prepared.
Behind a transaction pooler, which is detected because ``pg_backend_pid()`` differs from the process id that
the connection was given, session state must not be used: statements are not prepared, and timeouts and the
role are set in each transaction. How dead connections are noticed: ``liveness``.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from time import monotonic
from typing import Any

import psycopg
from django.db import connections
from psycopg.adapt import PyFormat
from psycopg.conninfo import make_conninfo
from psycopg.pq import PGconn, Ping, TransactionStatus
from psycopg.types.array import BaseListDumper, ListDumper
from psycopg.types.string import StrDumperUnknown, TextLoader

from ..formatting import get_logger
from . import sql_of
from .liveness import BoundedConnection, client_parameters, set_server_keepalive

logger = get_logger(__name__)
#: The ``application_name`` of supervisors. Everybody may read it in ``pg_stat_activity``.
SUPERVISOR = "pgqueue supervisor"
#: Milliseconds. A statement of the worker takes milliseconds. One that takes a minute holds up everything,
#: and the process does nothing else while a statement waits for a lock.
STATEMENT_TIMEOUT = 60_000
LOCK_TIMEOUT = 2_000
_SETTINGS = {
    "statement_timeout": str(STATEMENT_TIMEOUT),
    "lock_timeout": str(LOCK_TIMEOUT),
    # A role or a database may have these for web requests. A worker listens for hours, and its transactions
    # are idle only while its process is stopped.
    "idle_session_timeout": "0",
    "idle_in_transaction_session_timeout": str(2 * STATEMENT_TIMEOUT),
    # Reports are the exception. Claims, heartbeats and recoveries that a server crash loses are repeated.
    "synchronous_commit": "off",
    # Times are returned as text and compared as text.
    "TimeZone": "UTC",
    "DateStyle": "ISO",
    # psycopg reads intervals only in this style.
    "IntervalStyle": "postgres",
    # Texts are as they are written.
    "standard_conforming_strings": "on",
    # psycopg and we write NULL into arrays.
    "array_nulls": "on",
    # A statement from which a policy would hide rows is an error: a job that is not seen looks like none.
    "row_security": "off",
}
#: Whether a policy lets the role see and change all rows of a table, and no other one restricts it.
SEES_ALL = sql_of(__file__, "sees_all")
PING_TIMEOUT = 2  # seconds; a server that takes longer does not answer
#: Seconds between two lines of the log about side writes of one kind that are refused.
TELL_EVERY = 60.0
_told: dict[str, float] = {}
#: Seconds after which plans are made anew, and the same in a session that does something only every ten.
PLANS_LAST = 2.0
PLANS_LAST_IDLE = 60.0


class StandbyError(psycopg.OperationalError):
    """The server is a standby."""

    def __init__(self) -> None:
        super().__init__("this server is a standby: a worker needs the primary and waits for it")


class StalePreparedStatementError(psycopg.OperationalError):
    """A statement that the session has prepared cannot be used anymore, so the session must be replaced."""

    def __init__(self, error: psycopg.Error) -> None:
        super().__init__(
            f"a prepared statement cannot be used anymore: {error.diag.message_primary}. The session is "
            "replaced, which is normal after a migration; if it happens repeatedly, check whether there is a "
            "pooler or proxy in between"
        )


#: Errors after which a worker reconnects and continues.
LOST_CONNECTION = (
    psycopg.OperationalError,
    psycopg.InterfaceError,
    psycopg.errors.ReadOnlySqlTransaction,  # the primary has become a standby, or read-only
)
#: Errors after which the same statement may succeed, here or in another session.
_NOT_REFUSED = (
    StandbyError,
    StalePreparedStatementError,
    psycopg.errors.ReadOnlySqlTransaction,
    psycopg.errors.DeadlockDetected,
    psycopg.errors.LockNotAvailable,
    psycopg.errors.SerializationFailure,
)
#: How the server refuses a prepared statement: a migration has changed the type of a column that it returns,
#: or a user has run DISCARD ALL in the session, or a proxy has replaced the process of the server.
_STALE = (
    psycopg.errors.FeatureNotSupported,
    psycopg.errors.InvalidSqlStatementName,
    psycopg.errors.DuplicatePreparedStatement,
)


class Session:
    """A connection, with what is known about it."""

    def __init__(
        self, connection: psycopg.Connection[Any], *, pooled: bool, commit: str, settings: dict[str, str]
    ) -> None:
        self.connection = connection
        self.pooled = pooled
        self.holds_lock = False  # the one which shows that its worker is alive
        self._commit = commit  # the configured synchronous_commit
        self._settings = settings  # of the session, or of each transaction behind a pooler
        self._succeeded: set[str] = set()  # the statements that did not fail when they ran last
        self._planned_at = monotonic()

    def rows(self, query: str, parameters: Any = None) -> list[Any]:
        """Run one statement and return its rows."""
        return self.run((query, parameters))[0]

    def row(self, query: str, parameters: Any = None) -> Any:
        """Run one statement and return its only row."""
        (row,) = self.rows(query, parameters)
        return row

    def value(self, query: str, parameters: Any = None) -> Any:
        """Run one statement and return its only value."""
        return self.row(query, parameters)[0]

    @contextmanager
    def aside(self, what: str) -> Iterator[None]:
        """Write ``what`` no job depends on. If the server refuses it, log that once a minute, and go on.

        Raise the errors after which a statement can be tried again, or the session must be replaced.
        """
        try:
            yield
        except psycopg.Error as error:
            if self.is_lost or isinstance(error, _NOT_REFUSED):
                raise
            now = monotonic()
            if now - _told.get(what, -TELL_EVERY) >= TELL_EVERY:
                _told[what] = now
                reason = error.diag.message_primary or error
                logger.warning("the server refuses to store %s, which is left out: %s", what, reason)

    @property
    def is_lost(self) -> bool:
        """Whether the connection is known to be closed."""
        return self.connection.closed

    def run(self, *statements: tuple[str, Any], durable: bool = False) -> list[list[Any]]:
        """Run statements in one round trip and one transaction, and return the rows of each.

        ``durable``: the commit waits for the disk, as far as the server is configured for that. This includes
        all earlier commits.

        Race: several statements leave the process one by one, followed by the end of their transaction. If
        the process is stopped in between (SIGSTOP, a frozen container), it keeps their locks. A single
        statement is sent together with the end of its transaction, so everything that others depend on, such
        as heartbeats and recovery, is a single statement. For the rest, the session of a worker that is found
        dead is terminated (``_pgqueue_end_sessions``).
        """
        head = self._head(durable=durable)
        if self.pooled:
            answers = self._run_in_one_message(*head, *statements)
        else:
            answers = [_rows(cursor) for cursor in self._run_prepared(*head, *statements)]
        return answers[len(head) :]

    def run_beside(
        self, work: Callable[[], None], *statements: tuple[str, Any], durable: bool = False
    ) -> list[psycopg.Cursor[Any]]:
        """Like ``run``, but do ``work`` while the server works on the statements, and return their cursors,
        so that the rows can be read later. ``work`` must not use the session, which must not be ``pooled``.
        It is not done if the statements could not be sent.
        """
        head = self._head(durable=durable)
        # Without BEGIN and COMMIT, the transaction would end when the pipeline ends, which is after the work.
        sent = (("BEGIN", None), *head, *statements, ("COMMIT", None))
        return self._run_prepared(*sent, beside=work)[1 + len(head) : -1]

    def refresh_plans(self, *, idle: bool = False) -> None:
        """Let the server plan statements and functions anew when they run next, unless it did so recently.
        ``idle``: nothing has been found to do, so the plans may be older.

        A plan that was made while the table of live jobs was empty reads the whole table. The server keeps
        the plans of prepared statements and of functions, until the table is analyzed. Before that,
        a user may enqueue a million jobs. New plans are good ones: they know the size of the table. Behind a
        pooler, only functions keep plans, in sessions that do not belong to the worker.
        """
        now = monotonic()
        if not self.pooled and now - self._planned_at >= (PLANS_LAST_IDLE if idle else PLANS_LAST):
            self._planned_at = now
            self.connection.execute("DISCARD PLANS")

    def _run_prepared(
        self, *statements: tuple[str, Any], beside: Callable[[], None] | None = None
    ) -> list[psycopg.Cursor[Any]]:
        """Run statements, prepared if each of them may be, and return the cursor of each.

            new --succeeds--> has run --runs again--> prepared
            has run, prepared --fails--> new (psycopg keeps what is prepared, and it is used again later)
            prepared --its result has another type, or the server does not know it--> the session is replaced

        A statement that runs once is not prepared, since that would only cost a round trip. A statement that
        has just failed is not, because when the first execution of a prepared statement fails, psycopg
        forgets the statement, but the server keeps it: repeating it would fill the server's memory.

        Raise ``StalePreparedStatementError`` if the session must be replaced. The same errors of the server
        may have nothing to do with preparing. In the new session the statement is not prepared when it runs
        first, so there its own error is raised.
        """
        texts = {text for text, _ in statements}
        prepare = texts <= self._succeeded
        # Not with prepare=False: psycopg would still count the statement. If it is later prepared in a
        # pipeline that fails before it, psycopg believes that the server knows it.
        self.connection.prepare_threshold = 0 if prepare else None
        try:
            if len(statements) == 1:
                cursors = [self.connection.execute(*statements[0])]
            else:
                with self.connection.pipeline():
                    cursors = [self.connection.execute(*statement) for statement in statements]
                    if beside is not None:
                        beside()
        except psycopg.Error as error:
            self._succeeded -= texts
            self.connection.prepare_threshold = None
            if self.connection.info.transaction_status == TransactionStatus.INERROR:
                self.connection.execute("ROLLBACK")
            if prepare and isinstance(error, _STALE):
                raise StalePreparedStatementError(error) from error
            raise
        except ValueError as error:
            if not self.is_lost:
                raise
            # Race: the session ended between the two answers to a prepare; psycopg before 3.3.3 expects one.
            raise psycopg.OperationalError("the session ended while a statement was prepared") from error
        finally:
            self.connection.prepare_threshold = None
        self._succeeded |= texts
        return cursors

    def _run_in_one_message(self, *statements: tuple[str, Any]) -> list[list[Any]]:
        """Use the simple protocol: the text contains the parameters, and all of it is one transaction.

        Race: the last message of a pipeline, a Flush, comes after the end of the transaction. By then a
        pooler may have taken the server connection back. It assigns another one for that message (pgbouncer
        1.18 does), which never gets an answer, so a sleeping worker would keep it.
        """
        with psycopg.ClientCursor(self.connection) as cursor:
            cursor.execute("; ".join(cursor.mogrify(*statement) for statement in statements))
            answers = [_rows(cursor)]
            while cursor.nextset():
                answers.append(_rows(cursor))
        return answers

    def _head(self, *, durable: bool) -> list[tuple[str, Any]]:
        """Return the statement that sets what a transaction needs, if it needs anything."""
        settings = dict(self._settings) if self.pooled else {}
        if durable:
            settings["synchronous_commit"] = self._commit
        return [_set(settings, local=True)] if settings else []

    def notifications(self) -> Sequence[psycopg.Notify]:
        """Return the notifications since the last call, without waiting."""
        return list(self.connection.notifies(timeout=0))

    def close(self) -> None:
        """Close the connection, in whatever state it is."""
        self.connection.close()


def connect(alias: str, *, name: str = "pgqueue worker", standby: bool = False) -> Session:
    """Open a new session of the database ``alias``. ``name``: its ``application_name``, unless OPTIONS set
    another one.

    Raise ``StandbyError`` if the server is a standby, unless ``standby`` allows one, and another
    ``psycopg.OperationalError`` if no server can be reached.
    """
    connection = BoundedConnection.connect(**_parameters(alias, name), autocommit=True)
    try:
        for type_name in ("jsonb", "timestamptz"):
            # As text: the thread that runs the job converts the values that are needed.
            connection.adapters.register_loader(type_name, TextLoader)
        if dumper := _storable_dumper(connection.info.parameter_status("server_encoding")):
            connection.adapters.register_dumper(str, dumper)
        query = "SELECT pg_backend_pid(), pg_is_in_recovery(), current_setting('synchronous_commit'), "
        query += SEES_ALL.replace("{table}", "to_regclass('pgqueue_job_live')")
        ((backend_pid, in_recovery, commit, sees_all),) = connection.execute(query).fetchall()
        if in_recovery and not standby:
            raise StandbyError
        settings = dict(_SETTINGS)
        if connection.info.server_version >= 170_000:
            # It ends a transaction in which the process was stopped: the whole session, and not just the
            # statement. The server ignores the statement timeout if both are equal, so it is longer.
            settings["transaction_timeout"] = str(2 * STATEMENT_TIMEOUT)
        if role := connections[alias].settings_dict["OPTIONS"].get("assume_role"):
            settings["role"] = role
        if sees_all:  # by a policy, so that no policy hides a row
            settings["row_security"] = "on"
        pooled = backend_pid != connection.info.backend_pid
        if not pooled:
            connection.adapters.register_dumper(list, _UntypedListDumper)
            connection.execute(*_set(settings, local=False))
            set_server_keepalive(connection)
            connection.execute("SET plan_cache_mode TO force_generic_plan")
            connection.execute("SET default_transaction_isolation TO 'read committed'")
    except BaseException:
        connection.close()
        raise
    return Session(connection, pooled=pooled, commit=commit, settings=settings)


def is_standby(alias: str) -> bool:
    """Return whether a standby answers, if ``target_session_attrs`` makes the driver itself refuse it."""
    parameters = _parameters(alias)
    if parameters.pop("target_session_attrs", None) is None:
        return False
    try:
        with psycopg.connect(**parameters, autocommit=True) as connection:
            row = connection.execute("SELECT pg_is_in_recovery()").fetchone()
    except psycopg.OperationalError:
        return False
    return row == (True,)


def accepts_connections(alias: str) -> bool:
    """Return whether a server answers, and not with 57P03 (it starts or shuts down). It may refuse us."""
    # Not by the error of a connection that failed: psycopg has no code there, and texts are in any language.
    parameters = {**_parameters(alias), "connect_timeout": PING_TIMEOUT}
    return PGconn.ping(make_conninfo(**parameters).encode()) not in (Ping.REJECT, Ping.NO_RESPONSE)


def _parameters(alias: str, name: str = "pgqueue worker") -> dict[str, Any]:
    """Return the parameters of Django's own connections, with the ones that a worker adds."""
    parameters = connections[alias].get_connection_params()
    for unwanted in ("cursor_factory", "context", "autocommit"):
        parameters.pop(unwanted, None)
    # In a worker process, OPTIONS contain what is meant for the connections of tasks (``executor/fork.py``).
    of_task = client_parameters(of_task=True).items()
    parameters = {name: value for name, value in parameters.items() if (name, value) not in of_task}
    return {
        "application_name": name,
        "connect_timeout": 10,
        **client_parameters(),
        **parameters,
        "prepare_threshold": None,  # nothing is prepared before it is known that there is no pooler
    }


def _storable_dumper(encoding: str | None) -> type[StrDumperUnknown] | None:
    """Return a dumper that replaces characters which the encoding of the server lacks; None for UTF8. If it
    refused a report, the job would be lost, and an error about that may contain the same character.
    """
    if encoding in (None, "UTF8", "SQL_ASCII"):
        return None
    codec = str(encoding).replace("WIN", "cp").replace("KOI8", "koi8_")
    try:
        codecs.lookup(codec)
    except LookupError:  # such as EUC_TW
        codec = "ascii"

    class StorableDumper(StrDumperUnknown):
        def dump(self, obj: str) -> Any:
            return super().dump(obj if obj.isascii() else obj.encode(codec, "replace").decode(codec))

    return StorableDumper


def _set(settings: dict[str, str], *, local: bool) -> tuple[str, list[Any]]:
    """Return the statement that sets these parameters; ``local``: in this transaction only."""
    calls = ", ".join(["set_config(%s, %s, %s)"] * len(settings))
    return f"SELECT {calls}", [each for setting in settings.items() for each in (*setting, local)]


class _UntypedListDumper(ListDumper):
    """Sends a list without a type; the statement casts it. psycopg would choose one by the values:
    ``smallint[]``, ``integer[]``, ``bigint[]``, or none if empty, each another prepared statement.
    """

    def upgrade(self, obj: list[Any], format: PyFormat) -> BaseListDumper:  # noqa: A002 - psycopg's name
        """Return the dumper for a list with these elements."""
        dumper = super().upgrade(obj, format)
        dumper.oid = 0
        return dumper


def _rows(cursor: psycopg.Cursor[Any]) -> list[Any]:
    return cursor.fetchall() if cursor.description else []
