"""How long claims take: ``python -m benchmarks.claims CLAIMS JOBS`` prints the milliseconds of each.

The claims are those of a worker, one after the other on one connection with the worker's settings. Each moves
the mark of the only range (queue ``default``, priority 0) to its last job. The claimed jobs stay claimed.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import psycopg

from benchmarks.contestants.contract import database_url


def main(claims: int, jobs: int) -> None:
    """Claim this number of jobs so many times."""
    import django

    django.setup()
    from django_pgqueue.jobs.claim import Claimed, claim_sql

    claim = claim_sql()
    given: dict[str, Any] = {
        "queues": ["default"], "priorities": [0], "marks": ["2000-01-01"], "mark_ids": [0], "limit": jobs,
        "worker": 1, "first": [],
    }  # fmt: skip
    times = []
    with psycopg.connect(database_url(), autocommit=True, prepare_threshold=0) as connection:
        connection.execute("SET synchronous_commit TO off")
        connection.execute("SET plan_cache_mode TO force_generic_plan")
        for lease in range(claims):
            start = time.perf_counter()
            rows = connection.execute(claim, {**given, "lease": lease}).fetchall()
            times.append(time.perf_counter() - start)
            last = max((Claimed._make(row) for row in rows), key=lambda row: (row.run_after, row.id))
            given |= {"marks": [last.run_after], "mark_ids": [last.id]}
    print(*(seconds * 1e3 for seconds in times))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
