"""A million jobs of the future at the top priority, beside the jobs that are due.

They stay in a second database over all rounds, because it takes long to insert them.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from benchmarks.adverse import FIGURE, PLAIN, drain, insert, number_of_jobs, plain, targets
from benchmarks.contestants import OURS, OURS_AGAIN
from benchmarks.scenario import Bench, Scenario, Variant

if TYPE_CHECKING:
    from benchmarks.contender import Contender
    from benchmarks.scenario import Figures

__all__ = ["SCENARIOS"]

FUTURE = "beside future jobs"
JOBS = 1_000_000
TOP_PRIORITY = 100
DAY = 86_400.0

#: Everything of the earlier run; ``%(jobs)s`` future jobs stay.
_CLEAR = """
    TRUNCATE pgqueue_job_past_1, pgqueue_job_past_2, pgqueue_job_past_3, pgqueue_job_past_4,
        pgqueue_job_past_5, pgqueue_job_past_6, pgqueue_job_past_7, pgqueue_job_past_8, pgqueue_job_kept,
        pgqueue_stat, pgqueue_worker
"""
_STAYS = "SELECT count(*) FROM pgqueue_job_live WHERE priority = %s"


def beside_future_jobs(contender: Contender, jobs: int) -> Figures:
    """Drain jobs that are due, while the others wait for tomorrow."""
    connection = contender.connection
    if connection.execute(_STAYS, [TOP_PRIORITY]).fetchone() != (JOBS,):
        contender.start_again()
        insert(connection, JOBS, priority=TOP_PRIORITY, due_in=DAY)
    connection.execute("DELETE FROM pgqueue_job_live WHERE priority <> %s", [TOP_PRIORITY])
    connection.execute(_CLEAR)
    contender.marks.reset()
    insert(connection, jobs)
    return drain(contender, jobs)


def variants(bench: Bench) -> list[Variant]:
    """Return the variants."""
    jobs = number_of_jobs(bench)
    return [
        Variant(PLAIN, partial(plain, bench.contenders[OURS], jobs)),
        Variant(FUTURE, partial(beside_future_jobs, bench.contenders[OURS_AGAIN], jobs)),
    ]


SCENARIOS = [
    Scenario(
        name="future",
        title="A million future jobs at the top priority",
        about="No-op jobs of priority 0, one worker process. The future jobs have priority 100.",
        figure=FIGURE,
        variants=variants,
        baseline=PLAIN,
        rounds=2,
        contestants=(OURS, OURS_AGAIN),
        targets=targets(FUTURE),
    )
]
