"""The process of an adapter: it produces jobs and writes samples, while worker processes run the jobs.

``run()`` is the same for every queue. What differs is a ``Queue``: how to create the tables, add jobs and
count them, and which commands run workers. Every queue therefore gets the same processes: one that produces
and measures, and its workers.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple, Protocol

from .contract import Lines, Manifest, Options, now
from .latencies import Latencies
from .leash import leashed
from .pacing import pacing
from .reports import Inlet

ROOT = Path(__file__).resolve().parents[2]
STOP_SECONDS = 4.0  # the contract allows 5
COUNT_SECONDS = 0.2  # between two counts of the jobs; longer if counting itself takes long


class Depths(NamedTuple):
    """How many jobs there are, by their state. None: the queue cannot tell without slowing itself down."""

    queue: int = 0
    running: int | None = None
    retryable: int | None = None
    scheduled: int | None = None


class Call(NamedTuple):
    """The arguments of one job."""

    seq: int
    produced: float  # seconds since the epoch
    padding: str


class Queue(Protocol):
    """A queue that is measured. Its methods are called from several threads."""

    manifest: Manifest

    def prepare(self, options: Options) -> tuple[str, str]:
        """Create the tables. Return the versions of the queue and of its tables."""

    def add(self, calls: Sequence[Call]) -> None:
        """Add jobs, in the way that the documentation of the queue recommends for many."""

    def count(self) -> Depths:
        """Count the jobs that are not over."""

    def workers(self, options: Options) -> Sequence[tuple[Sequence[str], Mapping[str, str]]]:
        """Return the commands of the workers, each with what its environment needs."""


def run(queue: Queue) -> None:
    """Run the adapter until SIGTERM. Exits with 1 if a worker ends before that."""
    options = Options.read()
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    version, schema_version = queue.prepare(options)
    lines = Lines(queue.manifest, options.instance)
    with tempfile.TemporaryDirectory() as folder:
        inlet = Inlet(Path(folder))
        with _workers(queue.workers(options), inlet.environment) as workers:
            database = options.database_url.partition("?")[0].rpartition("/")[2]
            lines.descriptor(version, schema_version, database)
            replica = Replica(queue, options, lines, inlet)
            with replica.running():
                while not stop.wait(0.1):
                    for worker in workers:
                        if worker.poll() is not None:
                            raise SystemExit(f"A worker of {queue.manifest.system} ended: {worker.args!r}")


class Replica:
    """Produces, counts, reads reports and writes samples, each in a thread."""

    def __init__(self, queue: Queue, options: Options, lines: Lines, inlet: Inlet) -> None:
        self._queue = queue
        self._options = options
        self._lines = lines
        self._inlet = inlet
        self._subscriber = Latencies(options.window_seconds)
        self._end_to_end = Latencies(options.window_seconds)
        self._added = 0
        self._completed = 0
        self._depths = Depths()
        self._at_count = (0, 0)  # added and completed at the last count
        self._stop = threading.Event()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Run the threads during the block. Jobs that workers report after the block are still read."""
        loops = [self._produce, self._sample, self._read]
        if self._options.instance == 0 or self._options.is_depth_target:
            loops.append(self._count)
        threads = [threading.Thread(target=loop, daemon=True) for loop in loops]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._stop.set()

    def _produce(self) -> None:
        batches = pacing(self._options, self._estimated_depth)
        padding = "x" * max(0, self._options.payload_bytes - 64)
        while not self._stop.is_set():
            size = batches.batch()
            if size and not self._stop.is_set():
                moment = time.time()
                calls = [Call(self._added + number, moment, padding) for number in range(size)]
                if self._attempt("add jobs", partial(self._queue.add, calls)):
                    self._added += size

    def _count(self) -> None:
        pause = 0.0
        while not self._stop.wait(pause):
            began = time.monotonic()
            so_far = (self._added, self._completed)
            if self._attempt("count jobs", self._remember_depths):
                self._at_count = so_far
            pause = max(COUNT_SECONDS, 10 * (time.monotonic() - began))

    def _remember_depths(self) -> None:
        self._depths = self._queue.count()

    def _estimated_depth(self) -> float:
        added, completed = self._at_count
        return self._depths.queue + (self._added - added) - (self._completed - completed)

    def _attempt(self, what: str, action: Callable[[], None]) -> bool:
        """Do something that needs the database, which may be away for a moment."""
        try:
            action()
        except Exception as error:
            if not self._stop.is_set():
                print(f"{self._queue.manifest.system} could not {what}: {error!r}", file=sys.stderr)
                self._stop.wait(COUNT_SECONDS)
            return False
        return True

    def _read(self) -> None:
        while True:  # as long as the process lives, because a worker must never wait for a reader
            reports = list(self._inlet.read(1.0))
            if reports:
                self._subscriber.add((report.started - report.produced) * 1e3 for report in reports)
                self._end_to_end.add((report.finished - report.produced) * 1e3 for report in reports)
                self._completed += len(reports)

    def _sample(self) -> None:
        """Write samples on multiples of the interval. The first interval lasts at least half of one."""
        every = self._options.sample_seconds
        last, added, completed = time.time(), self._added, self._completed
        while True:
            tick = ((last + every / 2) // every + 1) * every
            if self._stop.wait(max(0.0, tick - time.time())):
                return
            moment, so_far = time.time(), (self._added, self._completed)
            seconds = moment - last
            self._write_sample((so_far[0] - added) / seconds, (so_far[1] - completed) / seconds)
            last, (added, completed) = moment, so_far

    def _write_sample(self, enqueue_rate: float, completion_rate: float) -> None:
        moment, window, every = now(), self._options.window_seconds, self._options.sample_seconds
        depths = self._depths
        values = {
            "enqueue_rate": (enqueue_rate, every),
            "completion_rate": (completion_rate, every),
            "total_backlog": (sum(filter(None, depths)), 0.0),
            "producer_target_rate": (
                0.0 if self._options.is_depth_target else self._options.current_rate(),
                0.0,
            ),
        }
        values |= {f"{name}_depth": (n, 0.0) for name, n in depths._asdict().items() if n is not None}
        # The latency of no job is not 0. If no job has run in the window, there is no line.
        if subscriber := self._subscriber.percentiles():
            for name in ("claim", "subscriber"):  # two names of the same: from insert to the start of the job
                values |= _named(name, subscriber, window)
        if end_to_end := self._end_to_end.percentiles():
            values |= _named("end_to_end", end_to_end, window)
        for metric, (value, window_s) in values.items():
            self._lines.sample(moment, metric, value, window_s)


def _named(name: str, percentiles: Sequence[float], window: float) -> dict[str, tuple[float, float]]:
    return {
        f"{name}_p{part}_ms": (value, window) for part, value in zip((50, 95, 99), percentiles, strict=True)
    }


@contextmanager
def _workers(
    commands: Sequence[tuple[Sequence[str], Mapping[str, str]]], environment: Mapping[str, str]
) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Run the workers during the block. They write to standard error only."""
    workers: list[subprocess.Popen[bytes]] = []
    try:
        for command, own in commands:
            workers.append(
                subprocess.Popen(
                    leashed(command),
                    cwd=ROOT,
                    env={**os.environ, "PYTHONPATH": str(ROOT), **environment, **own},
                    stdin=subprocess.DEVNULL,
                    stdout=sys.stderr,
                )
            )
        yield workers
    finally:
        for worker in workers:
            worker.terminate()
        deadline = time.monotonic() + STOP_SECONDS
        for worker in workers:
            try:
                worker.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                worker.kill()
                worker.wait()
