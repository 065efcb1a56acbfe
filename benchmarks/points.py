"""Measure what a job costs in bytes: ``python -m benchmarks.points [--json FILE]``.

This uses a durable server (the one that DATABASE_URL names, or one of its own), and one worker process. The
page about scaling takes its arithmetic from these points:

    WAL         what the server writes to its log for a job, from the enqueue to the history
    kept        what a finished job takes, with its indexes
    live        what a job that waits takes, with its indexes
    network     what clients and the server send each other for a job: on enqueuing it, and for the worker
    statistics  what a row of the statistics takes: one for each minute, queue and task in which jobs ran
    commits     how many commits a job takes

Each is measured with a job without arguments, and with one that has arguments of a kilobyte. A relay between
the clients and the server counts the bytes of the network.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from benchmarks.bench import empty, execute, one, run_worker, set_up, wait_for
from benchmarks.marks import VARIABLE, Marks

JOBS = 10_000
ONE_BY_ONE = 500
KILOBYTE = "x" * 1_000
_LIVE = "SELECT pg_total_relation_size('pgqueue_job_live')"
_KEPT = (
    "SELECT sum(pg_total_relation_size(inhrelid)) FROM pg_inherits WHERE inhparent = 'pgqueue_job'::regclass"
)
_WAL = "SELECT (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint"
_COMMITS = "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()"


class Relay:
    """Passes on what clients and a server send each other, and counts it."""

    def __init__(self, host: str, port: int) -> None:
        self._server = host, port
        self.sent = self.received = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            client, _ = self._listener.accept()
            server = socket.create_connection(self._server)
            for source, target in ((client, server), (server, client)):
                target.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                threading.Thread(target=self._pass_on, args=(source, target, client), daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket, client: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65_536):
                if source is client:
                    self.sent += len(data)
                else:
                    self.received += len(data)
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)


@contextmanager
def counted(relay: Relay, jobs: int, figures: dict[str, Any], name: str) -> Iterator[None]:
    """Count what is sent for each of so many jobs in the block."""
    before = relay.sent, relay.received
    yield
    figures[f"{name} to the server"] = round((relay.sent - before[0]) / jobs, 1)
    figures[f"{name} from the server"] = round((relay.received - before[1]) / jobs, 1)


def measure(relay: Relay, **arguments: str) -> dict[str, Any]:
    """Return all figures of a kind of job."""
    from benchmarks.tasks import noop, payload
    from django_pgqueue import enqueue, enqueue_many

    call = payload.bind(**arguments) if arguments else noop.bind()
    figures: dict[str, Any] = {}
    empty()
    execute("VACUUM FULL ANALYZE pgqueue_job_live")
    with counted(relay, ONE_BY_ONE, figures, "network: enqueue()"):
        for _ in range(ONE_BY_ONE):
            enqueue(call)
    empty()
    execute("VACUUM FULL ANALYZE pgqueue_job_live")
    execute("CHECKPOINT")
    kept, live, wal = int(one(_KEPT)), int(one(_LIVE)), int(one(_WAL))
    with counted(relay, JOBS, figures, "network: enqueue_many()"):
        for _ in range(JOBS // 1_000):
            enqueue_many(call for _ in range(1_000))
    enqueued = int(one(_WAL))
    figures["WAL: enqueue_many()"] = round((enqueued - wal) / JOBS, 1)
    figures["live job"] = round((int(one(_LIVE)) - live) / JOBS, 1)
    commits = int(one(_COMMITS))
    with counted(relay, JOBS, figures, "network: worker"):
        worker = run_worker("--processes", "1", is_silent=False)
        wait_for("SELECT NOT EXISTS (SELECT FROM pgqueue_job_live)")
        worker.terminate()
        worker.wait()
    figures["WAL: worker"] = round((int(one(_WAL)) - enqueued) / JOBS, 1)
    time.sleep(1)  # sessions report their commits when they end
    figures["commits: worker"] = round((int(one(_COMMITS)) - commits) / JOBS, 4)
    figures["kept job"] = round((int(one(_KEPT)) - kept) / JOBS, 1)
    return figures


def statistics() -> float:
    """Return the bytes of a row of the statistics of a minute, with its indexes."""
    histogram = "ARRAY[1, 5, 20, 100, 300, 80, 10]::bigint[]"
    execute("TRUNCATE pgqueue_stat")
    execute(f"""
        INSERT INTO pgqueue_stat (
            minute, rolled_up, queue_name, task_path, done, failed, retried, cancelled, wait_histogram,
            run_histogram, wait_seconds, run_seconds
        )
        SELECT date_trunc('minute', now()) - n * interval '1 minute', true, 'default',
            'shop.tasks.send_receipt', 500, 1, 2, 0, {histogram}, {histogram}, 12.5, 8.25
        FROM generate_series(1, 10000) AS n
    """)
    size = float(one("SELECT pg_total_relation_size('pgqueue_stat') / 10000.0"))
    execute("TRUNCATE pgqueue_stat")
    return round(size, 1)


def main() -> None:
    """Measure everything, print it, and write it to a file if one is given."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.points")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    if not os.environ.get("DATABASE_URL"):
        from benchmarks.server import server_url

        os.environ["DATABASE_URL"] = server_url()
    address = urlsplit(os.environ["DATABASE_URL"])
    relay = Relay(address.hostname or "127.0.0.1", address.port or 5432)
    place = f"{address.username}:{address.password}@127.0.0.1:{relay.port}"
    os.environ["DATABASE_URL"] = urlunsplit(address._replace(netloc=place))
    set_up()
    marks = Path(tempfile.mkdtemp()) / "marks"
    Marks(marks)
    os.environ[VARIABLE] = str(marks)
    points = {"no arguments": measure(relay), "1 kB": measure(relay, text=KILOBYTE)}
    for name in points["no arguments"]:
        print(f"{name:36}", *(f"{kind}: {figures[name]:>9,}" for kind, figures in points.items()), sep="  ")
    points["statistics"] = {"row of a minute": statistics()}
    print(f"a row of the statistics of a minute: {points['statistics']['row of a minute']} bytes")
    empty()
    if given.json:
        given.json.write_text(json.dumps({"unit": "bytes", "jobs": JOBS, "points": points}, indent=1) + "\n")


if __name__ == "__main__":
    main()
