"""The sessions of others: what they do to the database while a queue works."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any

import psycopg
from psycopg import sql

from .phases import Trouble

READERS = 4
READER_PAUSE = 0.1  # seconds between two queries of a reader


def sessions(trouble: Trouble, url: str, hot_table: str) -> AbstractContextManager[None]:
    """Return the sessions that a phase needs, if any."""
    if trouble is Trouble.IDLE_IN_TRANSACTION:
        return idle_in_transaction(url)
    if trouble is Trouble.READERS:
        return readers(url, hot_table)
    return nullcontext()


@contextmanager
def idle_in_transaction(url: str) -> Iterator[None]:
    """Hold a transaction open that has an id, so that vacuum removes nothing that is deleted after it."""
    with psycopg.connect(url) as connection:
        connection.execute("SELECT pg_current_xact_id()")
        yield
        connection.rollback()


@contextmanager
def readers(url: str, table: str) -> Iterator[None]:
    """Count the rows of a table in transactions that keep their first snapshot."""
    stop = threading.Event()
    with ExitStack() as stack:
        threads = []
        for _ in range(READERS):
            connection = stack.enter_context(psycopg.connect(url))
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            threads.append(threading.Thread(target=_count, args=(connection, table, stop)))
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            stop.set()
            for thread in threads:
                thread.join()


def _count(connection: psycopg.Connection[Any], table: str, stop: threading.Event) -> None:
    query = sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier(*table.split(".")))
    while not stop.is_set():
        connection.execute(query)
        stop.wait(READER_PAUSE)
