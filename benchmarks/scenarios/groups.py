"""Jobs with groups, against plain jobs: ten thousand tenants, and how long the only job of a small tenant
waits behind those of a large one."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from benchmarks.adverse import FIGURE, PLAIN, drain, number_of_jobs, plain
from benchmarks.contestants import OURS
from benchmarks.scenario import Bench, Scenario, Target, Variant

if TYPE_CHECKING:
    from benchmarks.contender import Contender
    from benchmarks.scenario import Figures

__all__ = ["SCENARIOS"]

MANY = "10,000 groups"
ONE = "one group"
GROUPS = 10_000
JOBS = 100_000

WAIT = "wait ms, p50 of small groups"
TURNS = "with groups"
NO_TURNS = "without groups"
SMALL = 50

_INSERT = """
    INSERT INTO pgqueue_job_live (task_path, max_attempts, on_lost, group_key, metadata)
    SELECT 'benchmarks.tasks.noop', 5, 'rerun', CASE WHEN %(grouped)s THEN 't' || number %% %(groups)s END,
        jsonb_build_object('small', %(small)s)
    FROM generate_series(1, %(jobs)s) AS number
"""
_SMALL = """
    INSERT INTO pgqueue_job_live (task_path, max_attempts, on_lost, group_key, metadata)
    SELECT 'benchmarks.tasks.noop', 5, 'rerun', CASE WHEN %(grouped)s THEN 'small ' || number END,
        '{"small": true}'
    FROM generate_series(1, %(jobs)s) AS number
"""
_WAIT = """
    SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY extract(epoch FROM started_at - first.at)) * 1000
    FROM pgqueue_job, (SELECT min(started_at) AS at FROM pgqueue_job) AS first
    WHERE metadata @> '{"small": true}'
"""


def grouped(contender: Contender, *, groups: int, jobs: int) -> Figures:
    """Drain jobs of so many groups."""
    contender.start_again()
    with contender.connection.transaction():
        contender.connection.execute("SET LOCAL pgqueue.notify = off")
        given = {"jobs": jobs, "groups": groups, "grouped": True, "small": False}
        contender.connection.execute(_INSERT, given)
    return drain(contender, jobs)


def behind(contender: Contender, *, grouped: bool, jobs: int) -> Figures:
    """Drain the jobs of one tenant, and behind these one job of each of some others."""
    contender.start_again()
    with contender.connection.transaction():
        contender.connection.execute("SET LOCAL pgqueue.notify = off")
        given = {"jobs": jobs, "groups": 1, "grouped": grouped, "small": False}
        contender.connection.execute(_INSERT, given)
        contender.connection.execute(_SMALL, {"jobs": SMALL, "grouped": grouped})
    figures = drain(contender, jobs + SMALL)
    row = contender.connection.execute(_WAIT).fetchone()
    assert row is not None
    return {WAIT: float(row[0]), FIGURE: figures[FIGURE]}


def throughput(bench: Bench) -> list[Variant]:
    """Return the variants of the drain."""
    ours, jobs = bench.contenders[OURS], number_of_jobs(bench)
    return [
        Variant(PLAIN, partial(plain, ours, jobs)),
        Variant(ONE, partial(grouped, ours, groups=1, jobs=jobs)),
        Variant(MANY, partial(grouped, ours, groups=GROUPS, jobs=JOBS)),
    ]


def waits(bench: Bench) -> list[Variant]:
    """Return the variants of the wait."""
    ours, jobs = bench.contenders[OURS], number_of_jobs(bench)
    return [
        Variant(name, partial(behind, ours, grouped=name == TURNS, jobs=jobs)) for name in (TURNS, NO_TURNS)
    ]


SCENARIOS = [
    Scenario(
        name="groups",
        title="Groups",
        about="No-op jobs, one worker process: all jobs in one group; 10,000 groups that take turns.",
        figure=FIGURE,
        variants=throughput,
        baseline=PLAIN,
        rounds=2,
        contestants=(OURS,),
        targets=(Target(FIGURE, 0.5, ONE, PLAIN), Target(FIGURE, 0.5, MANY, PLAIN)),
    ),
    Scenario(
        name="fairness",
        title="One job of each of 50 small tenants behind those of a large one",
        about="How long the jobs of the small tenants wait until they start.",
        figure=WAIT,
        lower_is_better=True,
        variants=waits,
        baseline=NO_TURNS,
        rounds=2,
        contestants=(OURS,),
    ),
]
