"""Measure the relay, or disturb it: ``python -m benchmarks.relay [--jobs N] [--slots N] [--kills N] ...``.

This uses two durable servers: the one that DATABASE_URL names, or one of its own, and a second one of its
own, whose alias is ``s1``. It prints

    plain        how long an enqueue takes, how many no-ops a worker runs in a second
    relay        the same for calls to ``s1``, and their ratio to the plain ones: with the default slots, and
                 with async slots, whose hand-overs share transactions
    delay        how long it takes from an enqueue to the commit in ``s1``, one call at a time
    kills        WANTED calls are committed while others are rolled back. The worker of the relay is killed,
                 when it can be with calls between the two commits, and the server of ``s1`` crashes. Fails if
                 a call has not arrived exactly once, or if a job does not know where it has
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread
from typing import Any

import psycopg

from benchmarks.bench import ROOT, empty, execute, one, rows, run_worker, set_up, wait_for
from benchmarks.server import create_database, server_url

SECOND = ROOT / "var" / "benchmarks-s1"
LEFT = "SELECT count(*) FROM pgqueue_job_live"


def main(given: argparse.Namespace) -> None:
    """Start both servers, and do what is asked for."""
    from example_project.embedded import ensure_server, stop_server

    try:
        os.environ["DATABASE_URL"] = create_database(server_url(), "relay")
        os.environ["S1_URL"] = create_database(ensure_server(SECOND), "relay")
        set_up()
        from django.core.management import call_command

        call_command("migrate", database="s1", verbosity=0)
        if given.jobs:
            measure(given.jobs, given.slots)
        if given.wanted:
            disturb(given)
    finally:
        stop_server(SECOND)


def measure(jobs: int, slots: int) -> None:
    """Compare calls that stay with calls that are handed over."""
    from benchmarks.tasks import unmarked

    relayed = unmarked.using(relay="s1")
    plain = [seconds_of_an_enqueue(unmarked), rate(unmarked, jobs)]
    print(f"plain: {plain[0] * 1e6:.0f} us for an enqueue, {plain[1]:,.0f} jobs/s")
    took = seconds_of_an_enqueue(relayed)
    print(f"relay: {took * 1e6:.0f} us for an enqueue (ratio {took / plain[0]:.2f})")
    for options in ((), ("--async-slots", str(slots))):
        found = rate(relayed, jobs, *options)
        name = " ".join(options) or "4 threads"
        print(f"relay, {name}: {found:,.0f} hand-overs/s (ratio {found / plain[1]:.2f})")
    with worker():
        a_delay(relayed)
        delays = sorted(a_delay(relayed) for _ in range(200))
    print(f"delay: median {statistics.median(delays):.1f} ms, 95 % within {delays[189]:.1f} ms")


def seconds_of_an_enqueue(task: Any) -> float:
    """Return the median of 500 calls, each with its commit."""
    from django_pgqueue import enqueue

    def took() -> float:
        began = time.perf_counter()
        enqueue(task)
        return time.perf_counter() - began

    found = statistics.median(took() for _ in range(500))
    empty()
    return found


def rate(task: Any, jobs: int, *options: str) -> float:
    """Return how many jobs a second a worker ends that finds so many of them."""
    from django_pgqueue import enqueue_many

    enqueue_many(task.bind() for _ in range(jobs))
    execute("VACUUM ANALYZE pgqueue_job_live")
    with worker(*options):
        wait_for(f"SELECT ({LEFT}) = 0")
    span = "SELECT extract(epoch FROM max(finished_at) - min(started_at)) FROM pgqueue_job"
    seconds = float(one(span))
    empty()
    return jobs / seconds


def a_delay(task: Any) -> float:
    """Return the milliseconds from an enqueue to its arrival. Both servers have the clock of this machine."""
    from django_pgqueue import enqueue

    job = enqueue(task)
    job.join(60)
    at = there(f"SELECT max(received_at) FROM pgqueue_received WHERE id = {job.pk}")
    return float((at - job.enqueued_at).total_seconds() * 1000)


@contextmanager
def worker(*options: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a worker, which is asked to stop at the end."""
    process = run_worker(*options, is_silent=True)
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


def there(statement: str) -> Any:
    """Run a statement on the second server, and return its first value, if there is one."""
    with psycopg.connect(os.environ["S1_URL"], autocommit=True) as connection:
        cursor = connection.execute(statement)
        return cursor.fetchall()[0][0] if cursor.description else None


def disturb(given: argparse.Namespace) -> None:
    """Enqueue, kill and crash, and compare what has arrived with what was wanted."""
    from benchmarks.tasks import unmarked

    chance = random.Random(given.seed)
    empty()
    there("TRUNCATE pgqueue_job, pgqueue_received")
    relayed = unmarked.using(relay="s1")
    caller = Thread(target=enqueue_all, args=(relayed, given, chance))
    caller.start()
    process, between = start(), 0
    faults = ["kill"] * given.kills + ["crash"] * given.restarts
    chance.shuffle(faults)
    for fault in faults:
        time.sleep(chance.uniform(0.3, 1.0))
        if fault == "crash":
            crash()
            continue
        between += wait_between()
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        process = start()
    caller.join()
    deadline = time.monotonic() + 300  # leases end, and backoffs
    while one(LEFT) and time.monotonic() < deadline:
        time.sleep(0.2)
    os.killpg(process.pid, signal.SIGTERM)
    process.wait()
    judge(given, between)


def enqueue_all(task: Any, given: argparse.Namespace, chance: random.Random) -> None:
    """Enqueue calls in short transactions, of which some are rolled back."""
    from django.db import connection, transaction

    from django_pgqueue import enqueue

    numbers = [*range(given.wanted), *[-1] * given.rolled_back]
    chance.shuffle(numbers)
    for number in numbers:
        with transaction.atomic():
            enqueue(task, number)
            transaction.set_rollback(number < 0)
        time.sleep(given.seconds / len(numbers))
    connection.close()


def start() -> subprocess.Popen[bytes]:
    """Start a worker of the first database in a process group of its own."""
    options = ["--verbosity", "0", "--queues", "relay", "--async-slots", "100"]
    command = [sys.executable, "-m", "django", "runqueueworker", *options]
    return subprocess.Popen(command, cwd=ROOT, start_new_session=True, stderr=subprocess.DEVNULL)


def wait_between(patience: float = 5.0) -> int:
    """Wait until calls have arrived whose jobs do not know it yet. Return how many; 0: there were none."""
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        try:
            arrived = there("SELECT count(*) FROM pgqueue_received")
        except psycopg.OperationalError:  # it starts
            continue
        if between := arrived - one("SELECT count(*) FROM pgqueue_job WHERE status = 'done'"):
            return max(0, int(between))
    return 0


def crash() -> None:
    """Let the second server crash and start again."""
    from example_project.embedded_programs import run, shelter

    data = shelter(SECOND.resolve()) / "data"
    run("pg_ctl", "restart", "-m", "immediate", "-D", str(data), "-l", str(data / "server.log"), "-w")


def judge(given: argparse.Namespace, between: int) -> None:
    """Print the counts. Exit with an error if they are not as they must be."""
    jobs = there("SELECT count(*) FROM pgqueue_job")
    calls = there("SELECT count(DISTINCT args) FROM pgqueue_job WHERE (args ->> 0)::integer >= 0")
    results = rows("SELECT result #>> '{}' FROM pgqueue_job")
    known = {int(str(result).partition(":")[2]) for (result,) in results}
    ids = set(there("SELECT array_agg(id) FROM pgqueue_job"))
    print(
        f"kills: {given.wanted} calls wanted and {given.rolled_back} rolled back, {given.kills} kills and "
        f"{given.restarts} crashes: {jobs} jobs with {calls} calls; {between} were between the commits"
    )
    if (jobs, calls) != (given.wanted, given.wanted) or known != ids:
        raise SystemExit("Calls were lost or repeated, or jobs do not know where their calls are.")


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=10_000, help="of each measurement; 0: none")
    parser.add_argument("--slots", type=int, default=100)
    parser.add_argument("--wanted", type=int, default=1_800, help="0: nothing is disturbed")
    parser.add_argument("--rolled-back", type=int, default=200)
    parser.add_argument("--kills", type=int, default=6)
    parser.add_argument("--restarts", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=10.0, help="for the enqueues while it is disturbed")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    given = parser.parse_args()
    print(f"seed {given.seed}")
    return given


if __name__ == "__main__":
    main(arguments())
