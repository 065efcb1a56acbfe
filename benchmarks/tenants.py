"""What tenants cost: ``python -m benchmarks.tenants [ROUNDS [CALLS]]``.

Two databases on one server: one with this version, and one without the index of tenants and what looks for a
tenant in the functions, where the column is NULL in each row. The same calls go to both in turn, and each has
a worker, which claims, runs and reports the same jobs. What counts is the processor time of the calls, or of
the worker, and of the server's processes for them (Linux; the server on this machine): other programs hardly
change it. Prints the median time of a call, or of a thousand jobs, and the median of the ratios of all
rounds. Fails if a ratio is above UNUSED where no job has a tenant, or above USED where each has one.
"""

from __future__ import annotations

import atexit
import re
import sys
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from statistics import median
from time import monotonic, process_time_ns, sleep
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

import psutil
from django.db import connections

from benchmarks.bench import execute, run_worker, set_up
from benchmarks.server import connect, drop_database, server_url

if TYPE_CHECKING:
    from django.db.backends.utils import CursorWrapper

UNUSED, USED = 1.03, 1.10
OTHER = "pgqueue_no_tenants"
_SESSIONS = (
    "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    " AND backend_type = 'client backend'"
)
_TENANT = r"\n    IF [^;]*? \? 'tenant'.*?\n    END IF;|\n    ELSIF jsonb_typeof\(tenant\).*?, tenant\);"
Run = Callable[[str, str | None, int], float]


def main(rounds: int, calls: int) -> None:
    """Measure all cases in turn, and print them."""
    set_up()
    execute("CREATE TABLE IF NOT EXISTS note (id bigserial PRIMARY KEY, text text)")
    given = connections["default"].settings_dict
    connections["default"].close()
    connections.settings["other"] = {**given, "NAME": OTHER}
    without_tenants(given["NAME"])
    cases: list[tuple[str, Run, int]] = [
        ("enqueue()", one, calls), ("enqueue() with keys", keyed, calls),
        ("enqueue_many() of 1,000", many, max(2, calls // 100)),
        ("1,000 empty jobs of a worker", partial(run, "nothing"), max(2, calls)),
        ("1,000 jobs of a worker that insert a row", partial(run, "insert_only"), max(2, calls // 5)),
    ]  # fmt: skip
    over = []
    for name, case, number in cases:
        for what, limit, tenant in (("no tenant", UNUSED, None), ("a tenant", USED, "acme")):
            times = []
            for turn in range(rounds + 1):
                order = [("other", None), ("default", tenant)][:: 1 if turn % 2 else -1]
                found = [case(alias, whose, number) for alias, whose in order]
                times.append(found[:: 1 if turn % 2 else -1])
            before, after = (median(column) for column in zip(*times[1:], strict=True))
            ratio = median(new / old for old, new in times[1:])
            words = f"{name}, {what}"
            print(f"{words}: {before:,.0f} and {after:,.0f} us, ratio {ratio:.3f}", flush=True)
            if ratio > limit:
                over.append(f"{name}, {what}")
    with connections["default"].cursor() as cursor:
        cursor.execute("ALTER TABLE pgqueue_job_live RESET (autovacuum_enabled)")
    connections.close_all()
    drop_database(server_url(), OTHER)
    if over:
        raise SystemExit(f"over the limit: {', '.join(over)}")


def without_tenants(name: str) -> None:
    """Copy the database, and take out the index and what looks for a tenant."""
    drop_database(server_url(), OTHER)
    with connect(server_url()) as server:
        server.execute(f'CREATE DATABASE "{OTHER}" TEMPLATE "{name}"')
    with connections["other"].cursor() as other:
        other.execute("DROP INDEX pgqueue_job_tenant")
        for function in ("_pgqueue_enqueue", "_pgqueue_enqueue_many", "_pgqueue_options_problem"):
            other.execute("SELECT pg_get_functiondef(%s::regproc)", [function])
            text, places = re.subn(_TENANT, "", other.fetchone()[0], flags=re.DOTALL)
            assert places == 1, function
            other.execute(text)
    for alias in ("default", "other"):  # what an earlier run has left costs its indexes time
        with connections[alias].cursor() as cursor:
            cursor.execute("VACUUM FULL pgqueue_job_live")
            # In the middle of a run, it would see an empty table in one database, and change its plans.
            cursor.execute("ALTER TABLE pgqueue_job_live SET (autovacuum_enabled = off)")


def one(alias: str, tenant: str | None, number: int, **options: Any) -> float:
    """Enqueue jobs one by one, each with a commit."""
    from benchmarks.tasks import noop
    from django_pgqueue import enqueue

    tasks = [noop.using(database=alias, tenant=tenant, **options) for _ in range(number)]
    if options:
        tasks = [task.using(unique_key=f"one of many {place}") for place, task in enumerate(tasks)]
    enqueue(noop.using(database=alias))
    began = worked(alias) + process_time_ns()
    for task in tasks:
        enqueue(task)
    spent = worked(alias) + process_time_ns() - began
    with connections[alias].cursor() as cursor:
        cursor.execute("TRUNCATE pgqueue_job_live")
    return spent / 1e3 / number


def keyed(alias: str, tenant: str | None, number: int) -> float:
    """Enqueue jobs with a unique key and a group."""
    return one(alias, tenant, number, group_key="acme")


def many(alias: str, tenant: str | None, number: int) -> float:
    """Enqueue jobs a thousand at a time, each thousand with a commit."""
    from benchmarks.tasks import noop
    from django_pgqueue import enqueue, enqueue_many

    task = noop.using(database=alias, tenant=tenant)
    enqueue(noop.using(database=alias))
    began = worked(alias) + process_time_ns()
    for _ in range(number):
        enqueue_many(task.bind() for _ in range(1000))
    spent = worked(alias) + process_time_ns() - began
    with connections[alias].cursor() as cursor:
        cursor.execute("TRUNCATE pgqueue_job_live")
    return spent / 1e3 / number


def run(name: str, alias: str, tenant: str | None, number: int) -> float:
    """Let a worker claim, run and report jobs: thousands of them, all of which it finds at once."""
    from benchmarks import tasks
    from django_pgqueue import enqueue_many, pause, resume

    worker = worker_of(alias)
    with connections[alias].cursor() as cursor:
        cursor.execute("TRUNCATE pgqueue_job, pgqueue_stat")
        pause(everything=True, using=alias)
        task = getattr(tasks, name).using(database=alias, tenant=tenant)
        enqueue_many(task.bind() for _ in range(1000 * number))
        before = spent(cursor, worker)
        resume(everything=True, using=alias)
        wait_for(cursor, "SELECT count(*) = 0 FROM pgqueue_job_live")
        used = spent(cursor, worker) - before
        wait_for(cursor, "SELECT bool_and(status = 'done') FROM pgqueue_job", seconds=1.0)
    return used * 1e6 / number


@cache
def worker_of(alias: str) -> psutil.Process:
    """Start the worker of a database. It ends with this program."""
    url = urlunsplit(urlsplit(server_url())._replace(path=f"/{connections[alias].settings_dict['NAME']}"))
    worker = run_worker("--processes", "1", database=url)
    atexit.register(worker.wait)
    atexit.register(worker.terminate)
    with connections[alias].cursor() as cursor:
        wait_for(cursor, "SELECT count(*) = 1 FROM pgqueue_worker")
    return psutil.Process(worker.pid)


def spent(cursor: CursorWrapper, worker: psutil.Process) -> float:
    """Return the seconds of a processor that a worker and its sessions have used."""
    cursor.execute(_SESSIONS)
    sessions = [psutil.Process(pid) for (pid,) in cursor.fetchall()]
    processes = [worker, *worker.children(recursive=True), *sessions]
    return sum(sum(process.cpu_times()[:2]) for process in processes)


def wait_for(cursor: CursorWrapper, question: str, seconds: float = 60.0) -> None:
    """Repeat a query until its result is true."""
    deadline = monotonic() + seconds
    while monotonic() < deadline:
        cursor.execute(question)
        if cursor.fetchone()[0]:
            return
        sleep(0.05)
    raise SystemExit(f"This is not true after {seconds:g} s: {question}")


def worked(alias: str) -> int:
    """Return the nanoseconds that the server has worked for this connection."""
    pid = connections[alias].connection.info.backend_pid
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0])


if __name__ == "__main__":
    main(*(int(each) for each in (sys.argv[1:] or ["40", "100"])))
