"""The adapter of procrastinate: ``batch_defer`` adds jobs, and its own command runs workers."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

import psycopg

from benchmarks.public.contract import Manifest, Options
from benchmarks.public.peers.procrastinate_app import app, bench_job
from benchmarks.public.replica import Call, Depths, run


class Procrastinate:
    """procrastinate."""

    manifest = Manifest.load(Path(__file__).with_name("procrastinate.json"))

    def prepare(self, options: Options) -> tuple[str, str]:
        """Create the tables if they are not there: ``apply_schema`` fails if it is called twice."""
        app.open()
        self._database = options.database_url
        with psycopg.connect(self._database) as connection:
            found = connection.execute("SELECT to_regclass('procrastinate_jobs')").fetchone()
        if found == (None,):
            app.schema_manager.apply_schema()
        return version("procrastinate"), version("procrastinate")

    def add(self, calls: Sequence[Call]) -> None:
        """Add jobs with one INSERT."""
        bench_job.batch_defer(*(call._asdict() for call in calls))

    def count(self) -> Depths:
        """Count the jobs of the benchmark by their status."""
        with psycopg.connect(self._database) as connection:
            row = connection.execute(
                "SELECT count(*) FILTER (WHERE status = 'todo'), count(*) FILTER (WHERE status = 'doing')"
                " FROM procrastinate_jobs WHERE status IN ('todo', 'doing') AND queue_name = 'bench'"
            ).fetchone()
        assert row is not None
        return Depths(queue=row[0], running=row[1])

    def workers(self, options: Options) -> Sequence[tuple[Sequence[str], Mapping[str, str]]]:
        """Return a command for each process."""
        path = "benchmarks.public.peers.procrastinate_app.app"
        command = [sys.executable, "-m", "procrastinate", "--app", path, "--log-level", "warning", "worker"]
        sizes = ["--concurrency", str(options.workers_per_process), "--shutdown-graceful-timeout", "2"]
        return [([*command, *sizes], {}) for _ in range(options.processes)]


if __name__ == "__main__":
    run(Procrastinate())
