"""Measure what a job costs with 1, 2 and 4 shards: ``python -m benchmarks.shards [JOBS [ROUNDS]]``.

Each shard has a server of its own, with PostgreSQL's default settings, in ``var/benchmarks/shards``. One
worker command works them, always with 4 processes of 4 threads: on a core that others use as well, the same
work takes more processor time, so more processes for more shards would be counted as a cost of the shards.
JOBS (default: 60,000) jobs that do nothing are divided equally, and then a tenth as many atomic jobs that
insert a row. They are enqueued while everything is paused, and the time counts from the end of the pause
until the last job is done. With few jobs, the first claims of each process are most of what is measured. The
numbers of shards take turns, ROUNDS (default: 3) times, and the medians are printed:

    processor   microseconds of all servers and of the worker, for a job
    jobs/s      which the cores of the machine bound, as everything runs on it
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import NamedTuple

import psutil

from benchmarks.bench import ROOT, run_worker
from example_project.embedded import ensure_server, stop_server

COUNTS = (1, 2, 4)
ALIASES = ["default", "s1", "s2", "s3"]
FOLDER = ROOT / "var" / "benchmarks" / "shards"


class Run(NamedTuple):
    """What a job has taken: microseconds of a processor, and the jobs of a second."""

    server: float
    worker: float
    rate: float


def main(jobs: int, rounds: int) -> None:
    """Measure everything and print the medians."""
    urls = {}
    for alias in ALIASES:
        atexit.register(stop_server, FOLDER / alias)
        urls[alias] = ensure_server(FOLDER / alias)
    os.environ.update(
        DATABASE_URL=urls["default"],
        SHARD_URLS=json.dumps(urls),
        DJANGO_SETTINGS_MODULE="benchmarks.settings",
    )
    import django
    from django.core.management import CommandError, call_command

    django.setup()
    for alias in ALIASES:
        call_command("migrate", database=alias, verbosity=0)
        with suppress(CommandError):  # it has been added before
            call_command("pgqueue", "shard", "add", alias, verbosity=0)
        execute(alias, "CREATE TABLE IF NOT EXISTS note (id bigserial PRIMARY KEY, text text)")
    from benchmarks import tasks

    load = ", ".join(f"{each:.1f}" for each in os.getloadavg())
    print(f"{jobs} jobs, {rounds} rounds, {os.cpu_count()} cores, load {load} at the start")
    for task, number in ((tasks.nothing, jobs), (tasks.insert_on_shard, jobs // 10)):
        runs: dict[int, list[Run]] = {count: [] for count in COUNTS}
        for _ in range(rounds):
            for count in COUNTS:
                runs[count].append(measure(ALIASES[:count], task, number))
        show(task.func.__name__, runs)


def show(name: str, runs: dict[int, list[Run]]) -> None:
    """Print the medians, and how they compare to one shard."""
    first = None
    for count, found in runs.items():
        server, worker, rate = (median(each) for each in zip(*found, strict=True))
        first = first or server + worker
        ratio = (server + worker) / first
        print(
            f"{name:16} {count} shards: {server + worker:7.1f} us/job ({ratio:.2f}; servers {server:.1f}, "
            f"worker {worker:.1f}), {rate:,.0f} jobs/s",
            flush=True,
        )


def measure(aliases: list[str], task: object, jobs: int) -> Run:
    """Run jobs on these shards."""
    from django_pgqueue import enqueue_many, pause, resume

    for alias in aliases:
        execute(alias, "TRUNCATE pgqueue_job, pgqueue_stat, pgqueue_worker, note")
        pause(everything=True, using=alias)
        calls = (task.using(database=alias).bind() for _ in range(jobs // len(aliases)))  # type: ignore[attr-defined]
        enqueue_many(calls)
        execute(alias, "VACUUM ANALYZE")
        execute(alias, "CHECKPOINT")
    worker = run_worker("--databases", ",".join(aliases), "--processes", str(max(COUNTS)))
    try:
        for alias in aliases:
            wait(alias, f"SELECT count(*) = {max(COUNTS) // len(aliases)} FROM pgqueue_worker")
        time.sleep(2)  # it has looked at what is paused
        processes = [psutil.Process(worker.pid)]
        servers = [psutil.Process(postmaster(alias)) for alias in aliases]
        before, began = (used(servers), used(processes)), time.monotonic()
        for alias in aliases:
            resume(everything=True, using=alias)
        for alias in aliases:
            wait(alias, "SELECT count(*) = 0 FROM pgqueue_job_live")
        seconds = time.monotonic() - began
        if any(
            execute(alias, "SELECT count(*) FROM pgqueue_job WHERE status <> 'done'")[0] for alias in aliases
        ):
            raise SystemExit("Jobs have failed.")
        spent = used(servers) - before[0], used(processes) - before[1]
    finally:
        worker.send_signal(signal.SIGTERM)
        worker.wait()
    return Run(spent[0] / jobs * 1e6, spent[1] / jobs * 1e6, jobs / seconds)


def used(roots: list[psutil.Process]) -> float:
    """Return the seconds of a processor that these processes and their children, living or not, have used."""
    seconds = 0.0
    for root in roots:
        for process in (root, *root.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                seconds += sum(process.cpu_times()[:4])
    return seconds


def postmaster(alias: str) -> int:
    """Return the process of the server of a shard."""
    (folder,) = execute(alias, "SHOW data_directory")
    return int(Path(str(folder), "postmaster.pid").read_text().split()[0])


def wait(alias: str, question: str) -> None:
    """Repeat a query, rarely enough that it costs nothing, until its result is true."""
    while not execute(alias, question)[0]:
        time.sleep(0.1)


def execute(alias: str, statement: str) -> tuple[object, ...]:
    """Run a statement, and return its first row, if it has one."""
    from django.db import connections

    with connections[alias].cursor() as cursor:
        cursor.execute(statement)
        return tuple(cursor.fetchone() or ()) if cursor.description else ()


if __name__ == "__main__":
    given = [int(each) for each in sys.argv[1:]]
    main(*(given + [60_000, 3][len(given) :]))
