"""What tenants cost: ``python -m benchmarks.tenants [ROUNDS [CALLS]]``.

Two databases on one server: one with this version, and one without the column, its index, and what looks for
a tenant in the functions. The same calls go to both in turn. What counts is the processor time of the
server's process, and of this one for ``enqueue()`` and ``enqueue_many()``, which commit (Linux; the server
on this machine): other programs hardly change it. Prints the median time of a call, and the median of the
ratios of all rounds. Fails if a ratio is above UNUSED where no job has a tenant, or above USED
where each has one.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import process_time_ns
from typing import Any

import psycopg
from django.db import connections

from benchmarks.bench import set_up
from benchmarks.server import connect, drop_database, server_url

UNUSED, USED = 1.03, 1.10
OTHER = "pgqueue_no_tenants"
_MANY = """
    SELECT ids FROM _pgqueue_enqueue_many(
        1, array_fill('a.b'::text, '{1000}'), array_fill('[1]'::jsonb, '{1000}'),
        array_fill('{}'::jsonb, '{1000}'), array_fill('{}'::jsonb, '{1000}'),
        array_fill('default'::text, '{1000}'), array_fill(0, '{1000}'),
        array_fill(NULL::timestamptz, '{1000}'), array_fill(NULL::float8, '{1000}'),
        array_fill(NULL::float8, '{1000}'), array_fill(3, '{1000}'), array_fill(60, '{1000}'),
        array_fill('rerun'::text, '{1000}'), NULL, NULL, %s::jsonb)
"""
_WORKER = "INSERT INTO pgqueue_worker (id, host, pid, queues, slots, version) VALUES (5, '', 1, '{}', 1, '')"
_RUN = """
    SELECT count(ended) FROM (
        SELECT array_agg(id) AS ids, array_agg(lease) AS leases, array_agg('done'::text) AS outcomes
        FROM pgqueue_claim('{default}', 1000, 5)
    ) AS claimed,
        _pgqueue_finish(ids, leases, outcomes, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 20) AS ended
"""
_TENANT = r"\n    IF [^;]*? \? 'tenant'.*?\n    END IF;|\n    ELSIF jsonb_typeof\(tenant\).*?, tenant\);"
Run = Callable[[str, str | None, int], float]


def main(rounds: int, calls: int) -> None:
    """Measure all cases in turn, and print them."""
    set_up()
    given = connections["default"].settings_dict
    connections["default"].close()
    connections.settings["other"] = {**given, "NAME": OTHER}
    without_tenants(given["NAME"])
    cases: list[tuple[str, Run, int]] = [
        ("enqueue()", one, calls), ("enqueue() with keys", keyed, calls),
        ("enqueue_many() of 1,000", many, max(2, calls // 100)),
        ("1,000 claimed and finished", run, max(2, calls // 200)),
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
    """Copy the database, and take out the column and what looks for a tenant."""
    drop_database(server_url(), OTHER)
    with connect(server_url()) as server:
        server.execute(f'CREATE DATABASE "{OTHER}" TEMPLATE "{name}"')
    with connections["other"].cursor() as other:
        other.execute("ALTER TABLE pgqueue_job DROP COLUMN tenant CASCADE")
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


def run(alias: str, tenant: str | None, number: int) -> float:
    """Claim and finish jobs a thousand at a time. All of it is rolled back."""
    with psycopg.connect(**_parameters(alias)) as connection:
        connection.execute(_WORKER)
        for _ in range(number):
            connection.execute(_MANY, ['{"tenant": "acme"}' if tenant else None])
        file = Path(f"/proc/{connection.info.backend_pid}/schedstat")
        began = int(file.read_text().split()[0])
        for _ in range(number):
            connection.execute(_RUN)
        spent = int(file.read_text().split()[0]) - began
        connection.rollback()
    return spent / 1e3 / number


def worked(alias: str) -> int:
    """Return the nanoseconds that the server has worked for this connection."""
    pid = connections[alias].connection.info.backend_pid
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0])


def _parameters(alias: str) -> dict[str, Any]:
    given = connections[alias].get_connection_params()
    return {name: given[name] for name in ("host", "port", "user", "password", "dbname") if given.get(name)}


if __name__ == "__main__":
    main(*(int(each) for each in (sys.argv[1:] or ["40", "100"])))
