"""The floor of a drain: our claim and our finish, sent by a loop that does nothing else."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from benchmarks.marks import mark

from .contract import database_url
from .ours import Ours, set_up

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["BareSql"]

BATCH = 500


class BareSql(Ours):
    """No job threads, no policies, no signals, no log: two statements for each batch of 500 jobs."""

    name = "bare-sql"
    pace = 25_000
    scenarios = frozenset({"drain"})

    def commands(self, processes: int, threads: int, options: Sequence[str]) -> list[list[str]]:
        """Run the loop in each process."""
        return [[*self.program(), "work", str(threads)] for _ in range(processes)]

    def work(self, threads: int) -> None:
        """Claim and finish until SIGTERM. Only the commit of a finish waits for the disk."""
        import psycopg

        set_up()
        from django_pgqueue.lifecycle.claim import claim_sql
        from django_pgqueue.lifecycle.finish import FINISH_SQL, Outcome, finish_parameters

        signal.signal(signal.SIGTERM, lambda *_: exit(0))
        claim, lease = claim_sql("default"), 0
        given = {
            "queues": ["default"], "priorities": [0], "marks": ["2000-01-01"], "mark_ids": [0],
            "limit": BATCH, "worker": 1,
        }  # fmt: skip
        with (
            psycopg.connect(database_url(), autocommit=True, prepare_threshold=0) as claiming,
            psycopg.connect(database_url(), autocommit=True, prepare_threshold=0) as finishing,
        ):
            claiming.execute("SET synchronous_commit TO off")
            for connection in (claiming, finishing):
                connection.execute("SET plan_cache_mode TO force_generic_plan")
            while True:
                lease += 1
                rows = claiming.execute(claim, {**given, "lease": lease}).fetchall()
                if rows:
                    last = max(rows, key=lambda row: (row[7], row[0]))
                    given["marks"], given["mark_ids"] = [last[7]], [last[0]]
                    for _ in rows:
                        mark()
                    outcomes = [Outcome(row[0], lease, "done") for row in rows]
                    finishing.execute(FINISH_SQL, finish_parameters(outcomes, 20))
