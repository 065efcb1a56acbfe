"""The prepared statements of a worker's session: which are prepared, and when their plans are made anew.

    new --succeeds--> has run --runs again--> prepared
    has run, prepared --fails--> new (psycopg keeps what is prepared, and it is used again later)
    prepared --its result has another type, or the server does not know it--> the session must be replaced

A statement that runs once is not prepared, since that would only cost a round trip. A statement that has just
failed is not, because when the first execution of a prepared statement fails, psycopg forgets the statement,
but the server keeps it: repeating it would fill the server's memory.
"""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.types.array import ListDumper

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from psycopg.adapt import PyFormat
    from psycopg.types.array import BaseListDumper

__all__ = ["PreparedStatements", "StalePreparedStatementError", "fetch_rows"]

#: Seconds after which plans are made anew.
PLANS_LAST = 2.0
#: The same in a session that does something only every ten seconds.
PLANS_LAST_IDLE = 60.0

#: How the server refuses a prepared statement: a migration has changed the type of a column that it returns,
#: or somebody has run DISCARD ALL in the session, or a proxy has replaced the process of the server.
_STALE = (
    psycopg.errors.FeatureNotSupported,
    psycopg.errors.InvalidSqlStatementName,
    psycopg.errors.DuplicatePreparedStatement,
)


_BEGIN = ("BEGIN", None)
_COMMIT = ("COMMIT", None)


class StalePreparedStatementError(psycopg.OperationalError):
    """A statement that the session has prepared cannot be used anymore, so the session must be replaced."""

    def __init__(self, error: psycopg.Error) -> None:
        super().__init__(
            f"a prepared statement cannot be used anymore: {error.diag.message_primary}. The session is "
            "replaced, which is normal after a migration; if it happens repeatedly, check whether there is a "
            "pooler or proxy in between"
        )


class PreparedStatements:
    """Runs the statements of one session, which must be a direct connection in autocommit mode."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection
        self._succeeded: set[str] = set()  # the statements that did not fail when they ran last
        self._planned_at = monotonic()
        connection.adapters.register_dumper(list, _UntypedListDumper)

    def run(
        self, *statements: tuple[str, Any], beside: Callable[[], None] | None = None
    ) -> list[psycopg.Cursor[Any]]:
        """Run statements in one round trip and one transaction, and return the cursor of each.

        ``beside`` is called while the server works, if the statements could be sent. It must not use the
        connection.

        They are prepared if each of them may be. Raise ``StalePreparedStatementError`` if the session must be
        replaced. The same errors of the server may have nothing to do with preparing. In the new session the
        statement is not prepared when it runs first, so there its own error is raised.
        """
        if beside is not None:
            # Without them, the transaction would end when the pipeline ends, which is after the call.
            statements = (_BEGIN, *statements, _COMMIT)
        texts = {text for text, _ in statements}
        prepare = texts <= self._succeeded
        # Not with prepare=False: psycopg would still count the statement. If it is later prepared in a
        # pipeline that fails before it, psycopg believes that the server knows it.
        self._connection.prepare_threshold = 0 if prepare else None
        try:
            cursors = self._send(statements, beside)
        except psycopg.Error as error:
            self._succeeded -= texts
            self._connection.prepare_threshold = None
            if self._connection.info.transaction_status == TransactionStatus.INERROR:
                self._connection.execute("ROLLBACK")
            if prepare and isinstance(error, _STALE):
                raise StalePreparedStatementError(error) from error
            raise
        finally:
            self._connection.prepare_threshold = None
        self._succeeded |= texts
        return cursors if beside is None else cursors[1:-1]

    def refresh_plans(self, *, idle: bool = False) -> None:
        """Let the server plan everything anew when it runs next, if the plans are some seconds old.

        A plan that was made while the table of live jobs was empty reads the whole table. The server keeps
        the plans of prepared statements, and those of functions, until the table is analyzed. Before that,
        somebody may enqueue a million jobs. New plans are good ones: they know the size of the table.
        """
        now = monotonic()
        if now - self._planned_at >= (PLANS_LAST_IDLE if idle else PLANS_LAST):
            self._planned_at = now
            self._connection.execute("DISCARD PLANS")

    def _send(
        self, statements: Sequence[tuple[str, Any]], beside: Callable[[], None] | None
    ) -> list[psycopg.Cursor[Any]]:
        if len(statements) == 1:
            return [self._connection.execute(*statements[0])]
        with self._connection.pipeline():
            cursors = [self._connection.execute(*statement) for statement in statements]
            if beside is not None:
                beside()
        return cursors


class _UntypedListDumper(ListDumper):
    """Sends a list without a type; the statement casts it.

    psycopg's choice depends on the values: ``smallint[]``, ``integer[]``, ``bigint[]``, or no type for an
    empty list. Each of them would be another prepared statement.
    """

    def upgrade(self, obj: list[Any], format: PyFormat) -> BaseListDumper:  # noqa: A002 - psycopg's name
        """Return the dumper for a list with these elements."""
        dumper = super().upgrade(obj, format)
        dumper.oid = 0
        return dumper


def fetch_rows(cursor: psycopg.Cursor[Any]) -> list[Any]:
    """Return the rows of a statement; none if it does not return rows."""
    return cursor.fetchall() if cursor.description else []
