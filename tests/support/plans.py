"""What statements read: plans by EXPLAIN, and rows by the counters that PostgreSQL keeps for a transaction.

The counters see into functions as well, and are the same on all versions.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import psycopg

from .sessions import Connection

__all__ = ["Reads", "buffers", "fill", "nodes", "plan", "reads"]

MODES = ["force_custom_plan", "force_generic_plan"]


@dataclass
class Reads:
    """Rows and index entries that were read, by relation; relations that were not touched are left out."""

    by_relation: dict[str, int] = field(default_factory=dict)

    def of(self, *prefixes: str) -> int:
        """The sum over all relations whose name begins so."""
        return sum(count for name, count in self.by_relation.items() if name.startswith(prefixes))


@contextmanager
def reads(connection: Connection) -> Iterator[Reads]:
    """Count what the block reads, then roll it back."""
    found = Reads()
    connection.execute("BEGIN")
    try:
        # They also hold what earlier transactions of the session have not reported yet.
        before = _counters(connection)
        yield found
        for name, count in _counters(connection).items():
            if count > before.get(name, 0):
                found.by_relation[name] = count - before.get(name, 0)
    finally:
        connection.execute("ROLLBACK")


def plan(
    connection: Connection, query: str, parameters: dict[str, Any], *, analyze: bool = False
) -> dict[str, Any]:
    """The plan of a statement with named parameters, prepared, so that `plan_cache_mode` counts."""
    numbered = {name: f"${number}" for number, name in enumerate(parameters, 1)}
    options = "ANALYZE, BUFFERS, FORMAT JSON" if analyze else "FORMAT JSON"
    connection.execute("BEGIN")
    try:
        connection.execute("PREPARE planned AS " + query % numbered)
        literals = ", ".join(_literal(connection, value) for value in parameters.values())
        row = connection.execute(f"EXPLAIN ({options}) EXECUTE planned({literals})").fetchone()
        assert row is not None
        found: dict[str, Any] = row[0][0]["Plan"]
        return found
    finally:
        connection.execute("ROLLBACK")
        connection.execute("DEALLOCATE ALL")


def nodes(of: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The plan and all that is below it."""
    yield of
    for below in of.get("Plans", ()):
        yield from nodes(below)


def buffers(of: dict[str, Any]) -> int:
    """Pages that an analyzed plan has touched."""
    return int(of["Shared Hit Blocks"]) + int(of["Shared Read Blocks"])


def fill(connection: Connection, table: str, count: int, **columns: str) -> None:
    """Insert rows, each column an expression of the number `n`, without triggers, and gather statistics."""
    given = {"task_path": "'tests.app.tasks.noop'", **columns}
    connection.execute("SET session_replication_role = replica")
    connection.execute(
        f"INSERT INTO {table} ({', '.join(given)})"
        f" SELECT {', '.join(given.values())} FROM generate_series(1, {count}) AS n"
    )
    connection.execute("SET session_replication_role = origin")
    connection.execute(f"ANALYZE {table}")


def _counters(connection: Connection) -> dict[str, int]:
    rows = connection.execute(
        "SELECT relname, pg_stat_get_xact_tuples_returned(oid) FROM pg_class"
        " WHERE relkind IN ('r', 'i') AND relname LIKE 'pgqueue%'"
    )
    return dict(rows.fetchall())


def _literal(connection: Connection, value: Any) -> str:
    return psycopg.ClientCursor(connection).mogrify("%s", (value,))
