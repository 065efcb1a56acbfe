"""A worker process of awa: ``python -m benchmarks.public.peers.awa_worker CONCURRENCY``.

The dispatcher is awa's own, in Rust. The jobs are coroutines. The intervals are those with which the author
of awa has measured its Python library: with the defaults, the jobs of a killed worker would run again after
90 seconds, which is longer than the phases.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from dataclasses import dataclass
from typing import Any

import awa

from benchmarks.public.contract import work_seconds
from benchmarks.public.reports import report

QUEUE = "bench"
CLAIMERS = 4  # its documentation: measure 2 or 4 for a hot queue. 4 was the fastest here
WORK = work_seconds()


@dataclass
class BenchJob:
    """The arguments of a job. awa derives the kind of the job from the name of the class."""

    seq: int
    produced: float
    padding: str


async def run(job: Any) -> None:
    """Work as long as the harness says, and report the times."""
    started = time.time()
    await asyncio.sleep(WORK)
    report(job.args.produced, started)


async def main(concurrency: int) -> None:
    """Work until SIGTERM."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    client = awa.AsyncClient(os.environ["DATABASE_URL"], max_connections=20)
    client.task(BenchJob, queue=QUEUE)(run)
    await client.start(
        [{"name": QUEUE, "max_workers": concurrency, "claimers": CLAIMERS}],
        poll_interval_ms=50,
        heartbeat_interval_ms=5_000,
        heartbeat_rescue_interval_ms=5_000,
        heartbeat_staleness_ms=15_000,
        leader_election_interval_ms=1_000,
    )
    await stop.wait()
    await client.shutdown(timeout_ms=2_000)
    await client.close()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
