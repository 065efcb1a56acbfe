"""Many clients that enqueue at the same time: ``python -m benchmarks.clients CLIENTS SECONDS``.

Each client is a thread with a connection of its own, in autocommit mode. It sends the text that Django sends
for ``enqueue()``, with as little Python around it as possible: the clients of this benchmark share the cores
with the server, and those of a web site do not. Python gives up its lock while it waits for the server.

Prints a line when all are connected, begins when a line arrives, and prints how many jobs were enqueued and
how long that took.
"""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack
from threading import Barrier, Thread

import psycopg
from psycopg import pq

from benchmarks.contestants.contract import database_url


def main(clients: int, seconds: float) -> None:
    """Connect, wait for the signal, and enqueue for this time."""
    text = statement()
    counts = [0] * clients
    barrier = Barrier(clients + 1)

    def run(place: int, connection: pq.abc.PGconn) -> None:
        barrier.wait()
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            result = connection.exec_(text)
            if result.status != pq.ExecStatus.TUPLES_OK:
                raise RuntimeError(result.error_message.decode())
            counts[place] += 1

    with ExitStack() as stack:
        connections = [
            stack.enter_context(psycopg.connect(database_url(), autocommit=True)) for _ in range(clients)
        ]
        threads = [
            Thread(target=run, args=(place, connection.pgconn))
            for place, connection in enumerate(connections)
        ]
        for thread in threads:
            thread.start()
        print("connected", flush=True)
        sys.stdin.readline()
        barrier.wait()
        start = time.monotonic()
        for thread in threads:
            thread.join()
        print(sum(counts), time.monotonic() - start, flush=True)


def statement() -> bytes:
    """Return the text of one ``enqueue()``, as the driver sends it."""
    import django

    django.setup()
    from django.db import connection
    from django.test.utils import CaptureQueriesContext

    from benchmarks.tasks import noop
    from django_pgqueue import enqueue

    with CaptureQueriesContext(connection) as queries:
        enqueue(noop)
    connection.close()
    (query,) = queries.captured_queries
    return str(query["sql"]).encode()


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))
