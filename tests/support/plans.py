"""What statements read: their plans from EXPLAIN, and the rows from PostgreSQL's counters for a transaction.

The counters also count what functions read, and they are the same on all versions.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import psycopg

from .jobs import claim_parameters
from .sessions import Connection

__all__ = ["claim_parameters"]

MODES = ("force_custom_plan", "force_generic_plan")

LIVE, HISTORY = "pgqueue_job_live", ("pgqueue_job_past", "pgqueue_job_kept")
CLAIM_INDEX = "pgqueue_job_claim"


@dataclass
class Reads:
    """The number of rows and index entries that were read from each relation that was used."""

    by_relation: dict[str, int] = field(default_factory=dict)

    def of(self, *prefixes: str) -> int:
        """Return the sum over all relations whose names start with one of the prefixes."""
        return sum(count for name, count in self.by_relation.items() if name.startswith(prefixes))


@contextmanager
def reads(connection: Connection) -> Iterator[Reads]:
    """Count what the block reads, then roll back."""
    connection.execute("BEGIN")
    try:
        with counted(connection) as found:
            yield found
    finally:
        connection.execute("ROLLBACK")


@contextmanager
def counted(connection: Connection) -> Iterator[Reads]:
    """Count what the block reads within a transaction."""
    found = Reads()
    # The counters also include what earlier transactions of the session have not reported yet.
    before = _counters(connection)
    yield found
    for name, count in _counters(connection).items():
        if count > before.get(name, 0):
            found.by_relation[name] = count - before.get(name, 0)


def plan(
    connection: Connection, query: str, parameters: dict[str, Any], *, analyze: bool = False
) -> dict[str, Any]:
    """Return the plan of a statement with named parameters. It is prepared, so that `plan_cache_mode`
    applies.
    """
    numbered = {name: f"${number}" for number, name in enumerate(parameters, 1)}
    options = "ANALYZE, BUFFERS, FORMAT JSON" if analyze else "FORMAT JSON"
    connection.execute("BEGIN")
    try:
        connection.execute("PREPARE planned AS " + query % numbered)
        literals = ", ".join(_literal(connection, value) for value in parameters.values())
        ((found,),) = connection.execute(f"EXPLAIN ({options}) EXECUTE planned({literals})").fetchall()
        return found[0]["Plan"]  # type: ignore[no-any-return]
    finally:
        connection.execute("ROLLBACK")
        connection.execute("DEALLOCATE ALL")


def nodes(of: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the node of a plan and all nodes below it."""
    yield of
    for below in of.get("Plans", ()):
        yield from nodes(below)


def buffers(of: dict[str, Any]) -> int:
    """Return the number of pages that an analyzed plan has read."""
    return int(of["Shared Hit Blocks"]) + int(of["Shared Read Blocks"])


def fill(connection: Connection, table: str, count: int, *, analyze: bool = True, **columns: str) -> None:
    """Insert rows without triggers, and run ANALYZE. Each column is an expression of the row's number `n`."""
    given = columns
    if table.startswith("pgqueue_job"):
        given = {"task_path": "'tests.app.tasks.noop'", **columns}
        if not connection.execute(f"SELECT 1 FROM {table} LIMIT 1").fetchone():
            connection.execute(f"TRUNCATE {table}")  # other tests may have left dead rows
    connection.execute("SET session_replication_role = replica")
    connection.execute(
        f"INSERT INTO {table} ({', '.join(given)})"
        f" SELECT {', '.join(given.values())} FROM generate_series(1, {count}) AS n"
    )
    connection.execute("SET session_replication_role = origin")
    if analyze:
        connection.execute(f"ANALYZE {table}")


def _counters(connection: Connection) -> dict[str, int]:
    rows = connection.execute(
        "SELECT relname, pg_stat_get_xact_tuples_returned(oid) FROM pg_class"
        " WHERE relkind IN ('r', 'i') AND relname LIKE 'pgqueue%'"
    )
    return dict(rows.fetchall())


def _literal(connection: Connection, value: Any) -> str:
    return psycopg.ClientCursor(connection).mogrify("%s", (value,))
