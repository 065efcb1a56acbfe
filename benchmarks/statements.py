"""How many statements a server has run in the database of a contestant.

``pg_stat_statements`` counts them if the server loads it. It is not among the default settings, so otherwise
the transactions are counted. Almost everything that an idle worker sends is a transaction of one statement.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .server import connect, server_url

if TYPE_CHECKING:
    from .contender import Contender

__all__ = ["Statements"]

_CALLS = """
    SELECT coalesce(sum(calls), 0)::bigint FROM pg_stat_statements
    WHERE dbid = (SELECT oid FROM pg_database WHERE datname = %s) AND query NOT LIKE '%%pg_stat_statements%%'
"""
_TRANSACTIONS = "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = %s"


class Statements:
    """Counts the statements of a contestant. What it sends itself is not counted."""

    def __init__(self, contender: Contender) -> None:
        self._database = contender.connection.info.dbname
        row = contender.connection.execute("SHOW shared_preload_libraries").fetchone()
        if row is not None and "pg_stat_statements" in row[0]:
            self._connection = connect(contender.url)
            self._connection.execute("CREATE EXTENSION IF NOT EXISTS pg_stat_statements")
            self._query = _CALLS
        else:
            self._connection = connect(server_url())  # in another database, so that this is not counted
            self._query = _TRANSACTIONS

    def count(self) -> int:
        """Return the number so far. Sessions report their transactions with a delay of about a second."""
        row = self._connection.execute(self._query, [self._database]).fetchone()
        assert row is not None
        return int(row[0])

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()
