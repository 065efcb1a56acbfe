"""The app and the tasks of procrastinate, for its worker and for its producer.

The intervals are those that the public harness uses for it. A job whose worker was killed stays in progress
until somebody retries it, so there is the periodic task that procrastinate's documentation recommends, with a
period that fits the short phases.
"""

from __future__ import annotations

import asyncio
import os
import time

import procrastinate

from benchmarks.public.contract import work_seconds
from benchmarks.public.reports import report

HEARTBEAT_SECONDS = 5.0
STALLED_SECONDS = 15.0
WORK = work_seconds()

app = procrastinate.App(
    connector=procrastinate.PsycopgConnector(conninfo=os.environ["DATABASE_URL"]),
    worker_defaults={
        "fetch_job_polling_interval": 0.05,
        "abort_job_polling_interval": 0.05,
        "update_heartbeat_interval": HEARTBEAT_SECONDS,
        "stalled_worker_timeout": STALLED_SECONDS,
    },
)


async def run(seq: int, produced: float, padding: str) -> None:
    """Work as long as the harness says, and report the times."""
    started = time.time()
    await asyncio.sleep(WORK)
    report(produced, started)


async def retry_stalled(timestamp: int) -> None:
    """Retry the jobs of workers that are dead."""
    for job in await app.job_manager.get_stalled_jobs(seconds_since_heartbeat=STALLED_SECONDS):
        await app.job_manager.retry_job(job)


bench_job = app.task(name="bench_job", queue="bench")(run)
app.periodic(cron="* * * * * */5")(
    app.task(name="retry_stalled", queue="upkeep", queueing_lock="retry_stalled")(retry_stalled)
)
