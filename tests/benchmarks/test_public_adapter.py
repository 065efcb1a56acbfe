"""The adapter of the public harness speaks the contract of that harness, started as the harness starts it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from django.db import connections

from benchmarks.public.adapter import PgQueue
from benchmarks.public.contract import OF_THE_QUEUE
from django_pgqueue.models import Job
from tests.support.waiting import until

ROOT = Path(__file__).resolve().parents[2]
SLOW = 60.0  # seconds; starting processes takes a while on a busy machine

#: The metrics that the harness demands, and those of the tables that are made from them, with their windows.
WINDOWS = {
    "enqueue_rate": 0.25,
    "completion_rate": 0.25,
    **dict.fromkeys(OF_THE_QUEUE, 0.0),
    **{f"{kind}_p{part}_ms": 30.0 for kind in ("claim", "subscriber", "end_to_end") for part in (50, 95, 99)},
}


class Adapter:
    """The running adapter, and the lines that it has written so far."""

    def __init__(self, url: str, **environment: str) -> None:
        self.lines: list[dict[str, Any]] = []
        self.process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.public.adapter"],
            cwd=ROOT,
            env={**os.environ, "DATABASE_URL": url, "SAMPLE_EVERY_S": "0.25", **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            self.lines.extend(json.loads(line) for line in lines)  # fails at a line that is not JSON

    def values(self, metric: str) -> list[float]:
        """Return the values of a metric so far."""
        return [line["value"] for line in list(self.lines) if line.get("metric") == metric]

    def tell(self, text: str) -> None:
        """Write to the standard input of the adapter."""
        assert self.process.stdin is not None
        self.process.stdin.write(text)
        self.process.stdin.flush()

    def end(self) -> int:
        """Wait until the adapter has ended and nobody holds its standard output. Return its exit code."""
        code = self.process.wait(SLOW)
        self._reader.join(SLOW)
        assert not self._reader.is_alive()
        assert self.process.stdin is not None
        self.process.stdin.close()
        return code


@pytest.fixture
def url(transactional_db: None) -> str:
    settings = connections["default"].settings_dict
    host = f"{settings['HOST']}:{settings['PORT']}" if settings["PORT"] else settings["HOST"]
    return f"postgresql://{settings['USER']}:{settings['PASSWORD']}@{host}/{settings['NAME']}"


def server_time() -> datetime:
    """Return the time of the server."""
    with connections["default"].cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        (now,) = cursor.fetchone()
    assert isinstance(now, datetime)
    return now


def sessions(since: datetime) -> int:
    """Return how many sessions the database has that have begun since then. Those of an earlier test may take
    a while to end on a busy machine.
    """
    with connections["default"].cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
            " AND backend_type = 'client backend' AND backend_start > %s",
            [since],
        )
        (number,) = cursor.fetchone()
    return int(number)


def test_the_adapter_speaks_the_contract(url: str) -> None:
    began = server_time()
    adapter = Adapter(url, PRODUCER_MODE="fixed", PRODUCER_RATE="40", WORKER_COUNT="2")
    until(lambda: len(adapter.values("end_to_end_p99_ms")) > 2, seconds=SLOW)
    adapter.process.send_signal(signal.SIGTERM)
    assert adapter.end() == 0
    until(lambda: not sessions(began), seconds=SLOW, what="no process is left")

    descriptor, *samples = adapter.lines
    manifest = json.loads((ROOT / "benchmarks" / "public" / "adapter.json").read_text())
    assert descriptor["kind"] == "descriptor"
    for key in ("system", "event_tables", "event_indexes", "extensions"):
        assert descriptor[key] == manifest[key]
    for key in ("version", "schema_version", "db_name", "started_at"):
        assert isinstance(descriptor[key], str)
    metrics = set()
    for sample in samples:
        assert datetime.fromisoformat(sample.pop("t")).utcoffset() is not None
        metric, value = sample.pop("metric"), sample.pop("value")
        assert isinstance(value, int | float)
        assert value >= 0
        assert sample == {
            "system": "django-pgqueue",
            "kind": "adapter",
            "subject_kind": "adapter",
            "subject": "",
            "instance_id": 0,
            "window_s": WINDOWS[metric],
        }
        metrics.add(metric)
    assert metrics == set(WINDOWS)


def test_the_manifest_names_tables_and_indexes_that_exist(transactional_db: None) -> None:
    manifest = PgQueue.manifest
    with connections["default"].cursor() as cursor:
        for relation in [*manifest.event_tables, *manifest.event_indexes]:
            cursor.execute(
                "SELECT relkind IN ('r', 'i') FROM pg_class WHERE oid = to_regclass(%s)", [relation]
            )
            assert cursor.fetchone() == (True,), relation


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a process with its parent")
def test_the_harness_paces_the_producer_and_workers_die_with_a_killed_adapter(url: str) -> None:
    began = server_time()
    adapter = Adapter(
        url, PRODUCER_PACING="harness", PRODUCER_RATE="1000", WORKER_COUNT="2", BENCH_INSTANCE_ID="1"
    )
    # A partial line is no token yet, and the end of the input is not the end of the adapter.
    adapter.tell("ENQUEUE 3\nnonsense\nENQUEUE 4\nENQUEUE 5")
    until(lambda: Job.objects.filter(status=Job.Status.DONE).count() == 7, seconds=SLOW)
    assert sessions(began)
    adapter.process.kill()
    assert adapter.end() == -signal.SIGKILL
    until(lambda: not sessions(began), seconds=SLOW, what="no process is left")
    assert Job.objects.count() == 7
    # Another replica reports what describes the whole queue.
    assert not OF_THE_QUEUE & {line.get("metric") for line in adapter.lines}
