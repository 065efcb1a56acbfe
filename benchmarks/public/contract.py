"""The contract of the public harness: what an adapter reads from its environment, and the lines it writes.

The contract is ``CONTRIBUTING_ADAPTERS.md`` of ``hardbyte/postgresql-job-queue-benchmarking``. An adapter is
one process. Its standard output has one JSON object per line: first a descriptor, then samples.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

#: What describes the whole queue, and not one replica: only the first replica reports it.
OF_THE_QUEUE = frozenset(
    "queue_depth running_depth retryable_depth scheduled_depth total_backlog producer_target_rate".split()
)


@dataclass(frozen=True)
class Options:
    """What the harness asks for, as it stands in the environment."""

    database_url: str
    is_depth_target: bool  # keep a number of jobs waiting, instead of adding jobs at a rate
    is_paced_by_harness: bool  # the harness says on standard input when to add jobs, and how many
    rate: float  # jobs per second
    rate_file: Path | None  # holds the current rate, which may change during the run
    batch_max: int
    batch_seconds: float
    target_depth: int
    workers: int
    payload_bytes: int
    work_seconds: float
    sample_seconds: float
    window_seconds: float
    instance: int

    @classmethod
    def read(cls, environment: Mapping[str, str] = os.environ) -> Options:
        """Read the options. Exit the program if the harness asks for a scenario that there is not."""
        scenario = environment.get("SCENARIO", "long_horizon")
        if scenario != "long_horizon":
            raise SystemExit(f"This adapter has only the scenario long_horizon, not {scenario}.")
        rate_file = environment.get("PRODUCER_RATE_CONTROL_FILE")
        is_depth_target = environment.get("PRODUCER_MODE", "fixed") == "depth-target"
        return cls(
            database_url=environment["DATABASE_URL"],
            is_depth_target=is_depth_target,
            is_paced_by_harness=environment.get("PRODUCER_PACING") == "harness" and not is_depth_target,
            rate=float(environment.get("PRODUCER_RATE", "800")),
            rate_file=Path(rate_file) if rate_file else None,
            batch_max=max(1, int(environment.get("PRODUCER_BATCH_MAX", "128"))),
            batch_seconds=max(1.0, float(environment.get("PRODUCER_BATCH_MS", "25"))) / 1e3,
            target_depth=int(environment.get("TARGET_DEPTH", "1000")),
            workers=max(1, int(environment.get("WORKER_COUNT", "32"))),
            payload_bytes=int(environment.get("JOB_PAYLOAD_BYTES", "256")),
            work_seconds=work_seconds(environment),
            sample_seconds=float(environment.get("SAMPLE_EVERY_S", "5")),
            window_seconds=float(environment.get("LATENCY_WINDOW_MS", "30000")) / 1e3,
            instance=int(environment.get("BENCH_INSTANCE_ID", "0")),
        )

    def current_rate(self) -> float:
        """Return the rate of this moment."""
        try:
            return max(0.0, float(self.rate_file.read_text())) if self.rate_file else self.rate
        except (OSError, ValueError):  # the file is just being written
            return self.rate

    @property
    def processes(self) -> int:
        """How many worker processes share the workers: one for each 32 workers, but not more than CPUs."""
        return max(1, min(os.cpu_count() or 1, -(-self.workers // 32)))

    @property
    def workers_per_process(self) -> int:
        """How many jobs each of the processes runs at once."""
        return -(-self.workers // self.processes)


def work_seconds(environment: Mapping[str, str] = os.environ) -> float:
    """Return how long each job takes by itself."""
    return max(0.0, float(environment.get("JOB_WORK_MS", "1"))) / 1e3


@dataclass(frozen=True)
class Manifest:
    """The ``adapter.json`` of an adapter. The harness reads it before it starts the adapter."""

    system: str
    db_name: str
    event_tables: Sequence[str]
    event_indexes: Sequence[str]
    extensions: Sequence[str]
    shutdown_grace_s: float = 10.0
    family: str = ""
    display_name: str = ""

    @classmethod
    def load(cls, path: Path) -> Manifest:
        """Read the file."""
        return cls(**json.loads(path.read_text()))


@dataclass
class Lines:
    """Writes the lines. Several threads may use it."""

    manifest: Manifest
    instance: int
    stream: IO[str] = field(default_factory=lambda: sys.stdout)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def descriptor(self, version: str, schema_version: str, database: str) -> None:
        """Write the first line."""
        self._write(
            {
                "kind": "descriptor",
                "system": self.manifest.system,
                "instance_id": self.instance,
                "event_tables": list(self.manifest.event_tables),
                "event_indexes": list(self.manifest.event_indexes),
                "extensions": list(self.manifest.extensions),
                "version": version,
                "schema_version": schema_version,
                "db_name": database,
                "started_at": now(),
            }
        )

    def sample(self, moment: str, metric: str, value: float, window: float) -> None:
        """Write one measured value, unless it is another replica's to report."""
        if metric in OF_THE_QUEUE and self.instance != 0:
            return
        self._write(
            {
                "t": moment,
                "system": self.manifest.system,
                "kind": "adapter",
                "subject_kind": "adapter",
                "subject": "",
                "instance_id": self.instance,
                "metric": metric,
                "value": round(value, 3),
                "window_s": window,
            }
        )

    def _write(self, record: dict[str, Any]) -> None:
        with self._lock:
            print(json.dumps(record), file=self.stream, flush=True)


def now() -> str:
    """Return the time of day as the lines have it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
