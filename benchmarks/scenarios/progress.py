"""What progress costs: one write for all the running jobs of a process, and one call in a task.

The writes are those of a worker, once for each variant, for 200 running jobs; the figure is that of all but
the first, which also marks the jobs. For comparison, the same values are written to the row of each job. The
WAL is what the server says that it has written.
"""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import nullcontext
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

from benchmarks.contestants import OURS
from benchmarks.scenario import Bench, Scenario, Target, Variant
from benchmarks.scenarios.snapshot import held_snapshot

if TYPE_CHECKING:
    from benchmarks.contender import Contender
    from benchmarks.scenario import Figures

__all__ = ["SCENARIOS"]

FIGURE = "ms/write"
JOBS = 200
MOST_MILLISECONDS = 5
CALL = "ns/call"
MOST_NANOSECONDS = 1_000
CALLS = 500_000

_PROGRAM = """
import django
django.setup()
from time import perf_counter
from django_pgqueue import track
from django_pgqueue.testing import fake_job

numbers = range({calls})
def nothing(done, total=None, note=""):
    pass
with fake_job() as job:
    began = perf_counter()
    {call}
    print((perf_counter() - began) / {calls} * 1e9)
"""
_IN_TASK = {
    "a function that does nothing": "for number in numbers: nothing(number, 500_000)",
    "set_progress(n, total)": "for number in numbers: job.set_progress(number, 500_000)",
    "set_progress(n, total, note)": "for number in numbers: job.set_progress(number, 500_000, 'reading')",
    "an item of track()": "for number in track(numbers): pass",
}

_JOBS = """
    INSERT INTO pgqueue_job_live (task_path, status, worker, lease, attempts)
    SELECT 'benchmarks.tasks.noop', 'running', 1, 1, 1 FROM generate_series(1, %s) RETURNING id
"""
_WRITES = {
    "progress": (
        "SELECT _pgqueue_write_progress(%(ids)s::bigint[], array_fill(1::bigint, %(size)s),"
        " array_fill(NULL::text, %(size)s), array_fill(%(turn)s::double precision, %(size)s),"
        " array_fill(100::double precision, %(size)s), array_fill('page'::text, %(size)s))"
    ),
    "steps": (
        "SELECT _pgqueue_write_progress(%(ids)s::bigint[], array_fill(1::bigint, %(size)s),"
        " array_fill('step-' || %(turn)s, %(size)s), array_fill(NULL::double precision, %(size)s),"
        " array_fill(NULL::double precision, %(size)s), array_fill(NULL::text, %(size)s))"
    ),
    "on the row of the job": (
        "UPDATE pgqueue_job_live AS job SET metadata = jsonb_build_object("
        "'done', %(turn)s::int, 'total', 100, 'note', 'page')"
        " FROM unnest(%(ids)s::bigint[]) AS given (id) WHERE job.id = given.id"
        " AND job.lease = 1 AND array_length(%(ids)s::bigint[], 1) = (%(size)s::int[])[1]"
    ),
}


def writes(contender: Contender, turns: int, statement: str, *, held: bool) -> Figures:
    """Return the milliseconds of one write, and the WAL of one job in it.

    ``held``: while a session holds an old snapshot, so that no dead row can be removed.
    """
    contender.start_again()
    connection = contender.connection
    connection.execute("TRUNCATE pgqueue_progress")
    ids = [row[0] for row in connection.execute(_JOBS, [JOBS]).fetchall()]
    contender.settle()
    given: dict[str, Any] = {"ids": ids, "size": [JOBS]}
    connection.execute(statement, {**given, "turn": 0})
    connection.execute("CHECKPOINT")
    connection.execute(statement, {**given, "turn": 0})  # pages are logged whole after a checkpoint
    with held_snapshot(contender.url) if held else nullcontext():
        before, size = _wal(connection), _live_leaf(connection)
        began = perf_counter()
        for turn in range(1, turns + 1):
            connection.execute(statement, {**given, "turn": turn})
        seconds = perf_counter() - began
        return {
            FIGURE: seconds / turns * 1e3,
            "WAL bytes/job": (_wal(connection) - before) / turns / JOBS,
            "MB of the live leaf": (_live_leaf(connection) - size) / 1e6,
        }


def calls(url: str, name: str) -> Figures:
    """Return the nanoseconds of one call in a process of its own, which has Django."""
    program = [sys.executable, "-c", _PROGRAM.format(calls=CALLS, call=_IN_TASK[name])]
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "benchmarks.settings", "DATABASE_URL": url}
    ended = subprocess.run(program, env=environment, capture_output=True, text=True, check=True)
    return {CALL: float(ended.stdout)}


def write_variants(bench: Bench) -> list[Variant]:
    """Return the variants of a write."""
    ours, turns = bench.contenders[OURS], int(12 * bench.seconds)
    return [
        Variant(f"{name}{words}", partial(writes, ours, turns, sql, held=held))
        for name, sql in _WRITES.items()
        for words, held in (("", False), (" beside an old snapshot", True))
    ]


def call_variants(bench: Bench) -> list[Variant]:
    """Return the variants of a call."""
    url = bench.contenders[OURS].url
    return [Variant(name, partial(calls, url, name)) for name in _IN_TASK]


def _wal(connection: Any) -> int:
    return int(connection.execute("SELECT pg_current_wal_insert_lsn() - '0/0'").fetchone()[0])


def _live_leaf(connection: Any) -> int:
    row = connection.execute("SELECT pg_total_relation_size('pgqueue_job_live')").fetchone()
    return int(row[0])


SCENARIOS = [
    Scenario(
        name="progress",
        title="200 running jobs report their progress",
        about="One statement of a worker, once a second, with its commit.",
        figure=FIGURE,
        variants=write_variants,
        baseline="on the row of the job",
        rounds=3,
        lower_is_better=True,
        contestants=(OURS,),
        targets=(Target(FIGURE, MOST_MILLISECONDS, "progress", at_most=True),),
    ),
    Scenario(
        name="progress-calls",
        title="A task reports its progress",
        about="One call, which keeps the values in memory, and one item of track().",
        figure=CALL,
        variants=call_variants,
        baseline="a function that does nothing",
        rounds=3,
        lower_is_better=True,
        contestants=(OURS,),
        targets=(Target(CALL, MOST_NANOSECONDS, "set_progress(n, total)", at_most=True),),
    ),
]
