"""The adapter of awa, through its Python library: ``enqueue_many_copy`` adds jobs."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

import awa

from benchmarks.public.contract import Manifest, Options
from benchmarks.public.peers.awa_worker import QUEUE, BenchJob
from benchmarks.public.replica import Call, Depths, run

BEHIND = """
    SELECT coalesce(sum(coalesce(added.last_value, 0) - coalesce(claimed.last_value, 0)), 0)::bigint AS behind
    FROM awa.queue_enqueue_heads added_by
    JOIN awa.queue_claim_heads claimed_by USING (queue, priority, enqueue_shard)
    LEFT JOIN pg_sequences added
        ON added.schemaname = 'awa' AND added.sequencename = added_by.seq_name
    LEFT JOIN pg_sequences claimed
        ON claimed.schemaname = 'awa' AND claimed.sequencename = claimed_by.seq_name
    WHERE queue = $1
"""


class Awa:
    """awa."""

    manifest = Manifest.load(Path(__file__).with_name("awa.json"))

    def prepare(self, options: Options) -> tuple[str, str]:
        """Migrate: a new database gets awa's fast storage at once."""
        self._client = awa.Client(options.database_url)
        self._client.migrate()
        return version("awa-pg"), str(awa.current_migration_version())

    def add(self, calls: Sequence[Call]) -> None:
        """Add jobs with COPY, straight into the storage."""
        self._client.enqueue_many_copy([BenchJob(*call) for call in calls], queue=QUEUE)

    def count(self) -> Depths:
        """Return how far the claims are behind the inserts. ``queue_stats()`` shows a stored snapshot, and
        the view ``awa.jobs`` took more than a minute with some ten thousand finished jobs.
        """
        with self._client.transaction() as transaction:
            row = transaction.fetch_one(BEHIND, QUEUE)
        return Depths(queue=int(row["behind"]))

    def workers(self, options: Options) -> Sequence[tuple[Sequence[str], Mapping[str, str]]]:
        """Return a command for each process. awa has no command for workers in Python."""
        command = [sys.executable, "-m", "benchmarks.public.peers.awa_worker"]
        return [([*command, str(options.workers_per_process)], {}) for _ in range(options.processes)]


if __name__ == "__main__":
    run(Awa())
