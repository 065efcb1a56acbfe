"""The floor of a drain: our claim and our finish, sent by a loop that does nothing else."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any

from benchmarks.marks import mark

from .contract import database_url
from .ours import Ours, set_up

if TYPE_CHECKING:
    import psycopg

    from .contract import Kind

__all__ = ["BATCH", "BareClaim", "BareSql", "open_session"]

BATCH = 500


class BareSql(Ours):
    """No job threads, no policies, no signals, no log: two statements for each batch of 500 jobs."""

    name = "bare-sql"
    pace = 45_000
    scenarios = frozenset({"drain"})

    def workers(self, kind: Kind) -> list[list[str]]:
        """Run the loop in one process."""
        return self.working(1, 1)

    def work(self, threads: int) -> None:
        """Claim and finish until SIGTERM. Only the commit of a finish waits for the disk."""
        set_up()
        from django_pgqueue.jobs.finish import Outcome, finish_statement

        signal.signal(signal.SIGTERM, lambda *_: exit(0))
        with open_session() as claiming, open_session() as finishing:
            claim = BareClaim(claiming)
            while True:
                rows = claim.take(BATCH)
                if rows:
                    for _ in rows:
                        mark()
                    outcomes = [Outcome(row[0], claim.lease, "done") for row in rows]
                    finishing.execute(*finish_statement(outcomes))


class BareClaim:
    """Our claim from the default queue with its mark. Its commit does not wait for the disk."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        from django_pgqueue.jobs.claim import claim_sql

        self.lease = 0
        self._connection = connection
        self._statement = claim_sql()
        self._range: dict[str, Any] = {
            "queues": ["default"], "priorities": [0], "marks": ["2000-01-01"], "mark_ids": [0], "first": [],
        }  # fmt: skip
        connection.execute("SET synchronous_commit TO off")

    def take(self, limit: int) -> list[tuple[Any, ...]]:
        """Claim up to ``limit`` jobs, and return their rows."""
        self.lease += 1
        rows = self._connection.execute(
            self._statement, {**self._range, "limit": limit, "worker": 1, "lease": self.lease}
        ).fetchall()
        if rows:
            last = max(rows, key=lambda row: (row[7], row[0]))
            self._range["marks"], self._range["mark_ids"] = [last[7]], [last[0]]
        return rows


def open_session() -> psycopg.Connection[tuple[Any, ...]]:
    """Return a connection like the one of a worker: statements are prepared, with one plan for all values."""
    import psycopg

    connection = psycopg.connect(database_url(), autocommit=True, prepare_threshold=0)
    connection.execute("SET plan_cache_mode TO force_generic_plan")
    return connection
