"""Problems of a single schedule or job: schedules that skip one run after the other, and jobs that run far
longer than the jobs of their task do.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from django.utils.translation import gettext as _

from ..formatting import age, number
from ..postgres import fetch_rows
from .depth import MOST
from .spans import WEEK, percentile, span_rows, span_sql

_SKIPPING = Path(__file__).with_name("skipping.sql").read_text(encoding="utf-8")
_SLOW = span_sql("parts", "slow")
LEAST_SKIPS = 3  # in a row
LEAST_SECONDS = 60.0  # of a slow job
TIMES_P95 = 3  # so many times as long as 95 % of the attempts
LEAST_ATTEMPTS = 20  # of a task in the last seven days; fewer say nothing about the next one
MOST_SLOW = 5


class Skipping(NamedTuple):
    """A schedule whose last runs were all skipped."""

    schedule: str
    skips: int  # in a row, counted up to ``MOST``
    job_id: int | None  # the job that was in the way of the last one

    def __str__(self) -> str:
        text = _("%(schedule)s: its last %(count)s runs were skipped")
        if self.job_id is not None:
            text = _("%(schedule)s: its last %(count)s runs were skipped, the latest because of job %(job)d")
        return text % {"schedule": self.schedule, "count": number(self.skips), "job": self.job_id}


class SlowJob(NamedTuple):
    """A running job that takes far longer than the jobs of its task did in the last seven days."""

    task_path: str
    job_id: int
    seconds: float  # how long the attempt has run so far
    p95: float  # the seconds that 95 % of the attempts did not exceed

    def __str__(self) -> str:
        return _(
            "Job %(job)d of %(task)s has run for %(age)s; 95 %% of its attempts end within %(usual)s"
        ) % {
            "job": self.job_id,
            "task": self.task_path,
            "age": age(self.seconds),
            "usual": age(self.p95),
        }


def skipping_schedules(alias: str) -> list[Skipping]:
    """Return the active schedules that have skipped `LEAST_SKIPS` runs in a row or more."""
    rows = fetch_rows(alias, _SKIPPING, {"least": LEAST_SKIPS, "most": MOST})
    return [Skipping(*row) for row in rows]


def slow_jobs(alias: str) -> list[SlowJob]:
    """Return the slowest running job of each task that has one, the slowest first, at most `MOST_SLOW`.

    Raises ``TimeLimitReached``.
    """
    found = []
    for task_path, job_id, seconds, histogram in span_rows(
        alias, _SLOW, WEEK, least=LEAST_SECONDS, most=MOST
    ):
        p95 = percentile(histogram, 0.95) or 0.0
        if sum(histogram) >= LEAST_ATTEMPTS and seconds > TIMES_P95 * p95:
            found.append(SlowJob(task_path, job_id, seconds, p95))
    return sorted(found, key=lambda job: job.p95 / job.seconds)[:MOST_SLOW]
