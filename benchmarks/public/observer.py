"""What the driver itself measures in the database of a queue: rows that are dead, and space that is used."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from .samples import Sample, Sink

_QUERY = (
    "SELECT coalesce(sum(n_dead_tup), 0)::float8, pg_database_size(current_database()) / 1048576.0::float8"
    " FROM pg_stat_user_tables"
)


@contextmanager
def observed(url: str, every: float, sink: Sink) -> Iterator[None]:
    """Measure the database in regular intervals during the block."""
    stop = threading.Event()
    with psycopg.connect(url, autocommit=True) as connection:

        def observe() -> None:
            while not stop.wait(every - time.time() % every):
                row = connection.execute(_QUERY).fetchone()
                assert row is not None
                for metric, value in zip(("dead_tuples", "database_mb"), row, strict=True):
                    sink(Sample(time.time(), 0, metric, value))

        thread = threading.Thread(target=observe)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()
