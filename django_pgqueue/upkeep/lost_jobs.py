"""Log the jobs of workers that died and cannot log them themselves.

A job gets a line if it failed, was cancelled, or counts a crash. The other jobs are only counted, because
they run again.

Race: two supervisors may recover the same workers. A job is in the answer to the one that moved it, so it
gets one line. It gets none if that supervisor loses its connection before the answer arrives.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from ..job_log import Ending, is_logged, log_ending

__all__ = ["log_lost_jobs"]

#: Other jobs may have run in the same process, so it is not known which of them took it down.
_WORDS = {"crash": "lost its process"}


class _LostJob(NamedTuple):
    """A job as the functions return it, with the same names (``sql/give_back_v1.sql``)."""

    id: int
    task_path: str
    queue_name: str
    attempts: int
    forgiven_attempts: int
    max_attempts: int | None
    outcome: str
    error_class: str | None
    reason: str


def log_lost_jobs(notable: str) -> int:
    """Log a line for each of these jobs (a JSON list), and return how many of them do not run again."""
    jobs = [_LostJob(**job) for job in json.loads(notable)]
    for job in jobs:
        kind = job.outcome
        if is_logged(kind):
            words = _WORDS.get(kind, kind)
            log_ending(job, Ending(kind, words, why=job.reason, error_class=job.error_class))
    return sum(job.outcome != "crash" for job in jobs)
