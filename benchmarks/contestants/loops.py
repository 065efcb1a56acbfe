"""The floor of jobs that insert a row: the same inserts in plain loops, without a queue."""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING, Any

from benchmarks.marks import mark

from .ours import Ours, set_up

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from .contract import Kind

__all__ = ["Loops"]


class Loops(Ours):
    """As many threads as the workers have, each over one Django connection."""

    name = "loops"
    insert_pace = 5_000
    scenarios = frozenset({"inserts"})
    unfinished = ""
    clear = "TRUNCATE to_insert"

    def prepare(self) -> None:
        """Create the table that says how many rows the loops insert."""
        set_up()
        from django.db import connection

        with connection.cursor() as cursor:
            cursor.execute("CREATE TABLE to_insert (amount bigint NOT NULL)")

    def fill(self, kind: str, jobs: int, **options: Any) -> None:
        """Note how many rows to insert."""
        set_up()
        from django.db import connection

        with connection.cursor() as cursor:
            cursor.execute("INSERT INTO to_insert VALUES (%s)", [jobs])

    def workers(self, kind: Kind) -> list[list[str]]:
        """Run as many threads as the default worker."""
        return self.commands(1, self.slots, ())

    def commands(self, processes: int, threads: int, options: Sequence[str]) -> list[list[str]]:
        """Run the loops, each process with its share of the rows."""
        return [[*self.program(), "work", str(threads), str(processes)]] * processes

    def work(self, threads: int, processes: int = 1) -> None:
        """Insert the rows, then wait for SIGTERM."""
        set_up()
        from django.db import connection

        with connection.cursor() as cursor:
            cursor.execute("SELECT sum(amount) FROM to_insert")
            (rows,) = cursor.fetchone()
        begun = threading.Barrier(threads)
        # All threads take from one iterator, so none of them ends long before the others.
        left = iter(range(int(rows) // processes))
        for _ in range(threads):
            threading.Thread(target=_insert, args=(begun, left), daemon=True).start()
        signal.signal(signal.SIGTERM, lambda *_: exit(0))
        while True:
            signal.pause()


def _insert(begun: threading.Barrier, left: Iterator[int]) -> None:
    """Insert what is left, together with other threads."""
    from django.db import connection

    from benchmarks.models import Note

    connection.ensure_connection()
    begun.wait()
    for _ in left:
        Note(text="a note").save()
        mark()
