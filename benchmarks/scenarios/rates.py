"""Jobs with a rate: what the gate and the charge cost while the rate is never reached, and how near real
rates come to what they allow.

The drain has rates of a million in a second, so no job waits for one. The other scenario compares how many
jobs started in a second with the number that was allowed.
"""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from benchmarks.adverse import FIGURE, PLAIN, drain, insert, number_of_jobs, plain
from benchmarks.contestants import OURS
from benchmarks.scenario import Bench, Scenario, Target, Variant

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.contender import Contender
    from benchmarks.scenario import Figures

__all__ = ["SCENARIOS"]

ONE = "one rate"
MANY = "10,000 rates"
QUEUE = "a rate of the queue"
GENEROUS = 1_000_000  # in a second, all of which may start at once
KEYS = 10_000
JOBS = 100_000

REACHED = "of the rate"
#: The rate in a second, and the burst.
RATES = ((10, 1), (10, 2), (100, 1), (100, 5), (1_000, 50))

_SET = "SELECT pgqueue_set_limit(%s, %s, NULL, NULL, %s, '1 second', %s)"
_RATED = """
    INSERT INTO pgqueue_job_live (id, task_path, max_attempts, on_lost, status, limit_key, wait_position)
    SELECT id, 'benchmarks.tasks.noop', 5, 'rerun',
        CASE WHEN %(bulk)s AND number >= %(keys)s THEN 'blocked' ELSE 'pending' END, 'rate/' || number %%
        %(keys)s, id
    FROM (
        SELECT nextval('pgqueue_job_id_seq') AS id, number FROM generate_series(0, %(jobs)s - 1) AS number
    ) AS new
"""
_TAKEN = """
    SELECT extract(epoch FROM max(last_attempted_at) - min(last_attempted_at))::float8
    FROM pgqueue_job WHERE limit_key = 'rate/0'
"""


@contextmanager
def limited(contender: Contender, kind: str, name: str, starts: int, burst: int) -> Iterator[None]:
    """Set a rate."""
    contender.connection.execute(_SET, (kind, name, starts, burst))
    try:
        yield
    finally:
        contender.connection.execute("TRUNCATE pgqueue_limit, pgqueue_rate")


def generous(contender: Contender, jobs: int, keys: int) -> Figures:
    """Drain jobs of so many keys, none of which has to wait."""
    contender.start_again()
    with limited(contender, "limit", "rate", GENEROUS, GENEROUS):
        _insert(contender, jobs, keys, bulk=False)
        return drain(contender, jobs)


def generous_queue(contender: Contender, jobs: int) -> Figures:
    """Drain plain jobs of a queue that has a rate."""
    contender.start_again()
    with limited(contender, "queue", "default", GENEROUS, GENEROUS):
        insert(contender.connection, jobs)
        return drain(contender, jobs)


def reached(contender: Contender, seconds: float, rate: int, burst: int) -> Figures:
    """Let jobs wait for their rate, for about this time. The burst at the beginning does not count."""
    contender.start_again()
    jobs = burst + int(rate * seconds)
    with limited(contender, "limit", "rate", rate, burst):
        _insert(contender, jobs, 1, bulk=True)
        drain(contender, jobs)
        (taken,) = contender.connection.execute(_TAKEN).fetchone() or (0.0,)
    return {REACHED: (jobs - burst) / taken / rate}


def _insert(contender: Contender, jobs: int, keys: int, *, bulk: bool) -> None:
    with contender.connection.transaction():
        contender.connection.execute("SET LOCAL pgqueue.notify = off")
        contender.connection.execute(_RATED, {"jobs": jobs, "keys": keys, "bulk": bulk})


def drains(bench: Bench) -> list[Variant]:
    """Return the variants of the drain."""
    ours, jobs = bench.contenders[OURS], number_of_jobs(bench)
    return [
        Variant(PLAIN, partial(plain, ours, jobs)),
        Variant(ONE, partial(generous, ours, jobs, 1)),
        Variant(MANY, partial(generous, ours, JOBS, KEYS)),
        Variant(QUEUE, partial(generous_queue, ours, jobs)),
    ]


def waits(bench: Bench) -> list[Variant]:
    """Return the variants with jobs that wait."""
    ours = bench.contenders[OURS]
    return [
        Variant(_named(rate, burst), partial(reached, ours, bench.seconds, rate, burst))
        for rate, burst in RATES
    ]


def _named(rate: int, burst: int) -> str:
    return f"{rate:,}/s, burst {burst}"


SCENARIOS = [
    Scenario(
        name="rates",
        title="Rates that are never reached",
        about="No-op jobs, one worker process: one rate for all, 10,000 rates, and a rate of the queue.",
        figure=FIGURE,
        variants=drains,
        baseline=PLAIN,
        rounds=3,
        contestants=(OURS,),
        targets=(
            Target(FIGURE, 0.5, ONE, PLAIN),
            Target(FIGURE, 0.5, MANY, PLAIN),
            Target(FIGURE, 0.9, QUEUE, PLAIN),
        ),
    ),
    Scenario(
        name="rates-reached",
        title="Rates that jobs wait for",
        about="No-op jobs, one worker process: how many started, compared with how many were allowed.",
        figure=REACHED,
        variants=waits,
        baseline=_named(*RATES[1]),
        rounds=3,
        contestants=(OURS,),
        targets=(
            *(Target(REACHED, 0.9, _named(rate, burst)) for rate, burst in RATES if burst > 1),
            *(Target(REACHED, 1.01, _named(rate, burst), at_most=True) for rate, burst in RATES),
        ),
    ),
]
