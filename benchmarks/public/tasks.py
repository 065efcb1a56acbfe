"""The task of this project's adapter."""

from __future__ import annotations

import time

from benchmarks.public.contract import work_seconds
from benchmarks.public.reports import report
from django_pgqueue import task

WORK = work_seconds()


@task
def bench_job(seq: int, produced: float, padding: str) -> None:
    """Work as long as the harness says, and report the times."""
    started = time.time()
    time.sleep(WORK)
    report(produced, started)
