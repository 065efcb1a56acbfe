"""Statistics and failures, as workers note them, and what maintenance does with them. And months of history
in seconds: the stored times are moved back, because no clock can be set.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from django.db import connections

from django_pgqueue.models.statistics import HISTOGRAM_BOUNDS
from django_pgqueue.worker.producer.reporter import STAT_SQL

from .jobs import rotate, value
from .sessions import Connection


def classes(**counts: int) -> list[int]:
    """Return a histogram: ``classes(c3=2)`` has two jobs in the fourth class."""
    return [counts.get(f"c{place}", 0) for place in range(len(HISTOGRAM_BOUNDS) + 1)]


def count(
    connection: Connection,
    minutes_ago: Iterable[float],
    done: int = 1,
    *,
    queue: str = "default",
    task: str = "tests.app.tasks.noop",
    at: str = "now",
) -> None:
    """Add done attempts to minutes, as the flush of a worker does. Each waited 2 ms and ran 1 s.

    ``at``: the time from which the minutes count. Calls that must meet in one row share it, since
    a minute may begin between them.
    """
    # In one statement: no two of them become the same minute.
    query = (
        "SELECT array_agg(date_trunc('minute', %s::timestamptz - ago * interval '1 minute')::text)"
        " FROM unnest(%s::float8[]) AS ago"
    )
    minutes = value(connection, query, at, [float(ago) for ago in minutes_ago])
    many = len(minutes)
    zeros = [0] * many
    waits = "{" + ",".join(map(str, classes(c1=done))) + "}"
    runs = "{" + ",".join(map(str, classes(c10=done))) + "}"
    parameters: list[Any] = [
        minutes, [queue] * many, [task] * many, [done] * many, zeros, zeros, zeros, [waits] * many,
        [runs] * many, [0.002 * done] * many, [1.0 * done] * many,
    ]  # fmt: skip
    connection.execute(STAT_SQL, parameters)


def roll_up(connection: Connection, limit: int = 1000) -> int:
    """Add what is over to the sums, and return the number of rows."""
    return int(value(connection, "SELECT _pgqueue_roll_up(%s)", limit))


def forget(connection: Connection, keep: str = "90 days", groups: int = 1000, limit: int = 1000) -> int:
    """Delete what is too old, and of failures what is too much."""
    return int(value(connection, "SELECT _pgqueue_forget_figures(%s, %s, %s)", keep, groups, limit))


def counted(connection: Connection) -> dict[str, tuple[int, int]]:
    """Return the done jobs and the classes of their waiting times in each kind of sums, each with the minutes
    that are not in it yet.
    """
    query = """
        SELECT level, sum(done)::int, sum((SELECT sum(n) FROM unnest(wait_histogram) AS n))::int FROM (
            SELECT span || CASE WHEN queue_name = '' THEN ' of all queues' WHEN task_path = '' THEN ' of all'
                ELSE '' END AS level, done, wait_histogram
            FROM pgqueue_stat_rollup
            UNION ALL
            SELECT level, done, wait_histogram FROM pgqueue_stat, unnest(ARRAY[
                'minute of all queues', 'minute of all', 'quarter of all queues', 'quarter of all', 'quarter',
                'hour of all queues', 'hour of all', 'hour', 'day of all queues', 'day of all', 'day', 'total'
            ]) AS level WHERE NOT rolled_up
            UNION ALL
            SELECT 'minute', done, wait_histogram FROM pgqueue_stat
        ) AS part GROUP BY level
    """
    return {level: (done, waited) for level, done, waited in connection.execute(query)}


def note(connection: Connection, fingerprint: str = "f", ago: str = "0", **more: Any) -> None:
    """Add a note of failed attempts, of one job that failed unless ``more`` has other columns."""
    row = {
        "fingerprint": fingerprint, "task_path": "tests.app.tasks.noop", "queue_name": "default",
        "version": "", "failed": 1, "retried": 0, "job_id": 1, "error_class": "builtins.ValueError",
        "message": "broken", "traceback": "Traceback", **more,
    }  # fmt: skip
    columns, places = ", ".join(row), ", ".join(f"%({name})s" for name in row)
    at = "clock_timestamp() - %(ago)s::interval"
    query = f"INSERT INTO pgqueue_failure_note (at, {columns}) VALUES ({at}, {places})"
    connection.execute(query, {**row, "ago": ago})


def fold(connection: Connection, most: int = 1000, limit: int = 1000) -> int:
    """Add the notes to the groups, and return how many there were."""
    return int(value(connection, "SELECT _pgqueue_fold_failures(%s, %s)", most, limit))


def failure(fingerprint: str = "f", *, alias: str = "default", **more: Any) -> None:
    """Note failed attempts on the connection of Django, and add them to the groups."""
    connections[alias].ensure_connection()
    note(connections[alias].connection, fingerprint, **more)
    fold(connections[alias].connection)


# --- Months of history


DAY = 24.0  # hours


@contextmanager
def fresh_ring(connection: Connection) -> Iterator[None]:
    """Reset the ring to its initial state before and after the block, because a flush does not reset it."""
    reset = (
        "UPDATE pgqueue_ring SET current = 1, since = clock_timestamp(), retention = '7 days',"
        " failed_retention = '30 days'"
    )
    connection.execute(reset)
    try:
        yield
    finally:
        connection.rollback()
        connection.execute(reset)
        connection.commit()


class World:
    """A ring of history with a job every few hours, and when each was dropped. All times are in hours."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        # The guard refuses to change a finished job, even its times.
        connection.execute("SET session_replication_role = replica")
        self.now = 0.0  # the true time
        self.jump = 0.0  # how far the clock of the server is ahead
        self.kept: dict[int, float] = {}  # the true time at which each job was over
        # for each dropped job: when it was dropped, and its true age
        self.dropped: list[tuple[float, float]] = []

    def retain(self, hours: float) -> None:
        """Change the setting of the retention."""
        self._connection.execute(
            "SELECT _pgqueue_retain(%s * interval '1 hour', '30 days', 1048576)", (hours,)
        )

    def run(self, hours: float, step: float, *, works: bool = True) -> None:
        """Let time pass in steps. At each step, a job ends and maintenance runs, unless `works` is false."""
        for _ in range(round(hours / step)):
            self.now += step
            self._shift(step)
            if works:
                self._finish()
                self._upkeep()

    def set_clock(self, hours: float) -> None:
        """Let the clock of the server jump."""
        self.jump += hours
        self._shift(hours)

    @property
    def oldest(self) -> float:
        """The true age of the oldest job that is kept."""
        return self.now - min(self.kept.values())

    def _shift(self, hours: float) -> None:
        back = f"interval '{hours} hours'"
        self._connection.execute(
            f"UPDATE pgqueue_ring SET since = since - {back};"
            f" UPDATE pgqueue_job SET finished_at = finished_at - {back} WHERE shelf <> 0"
        )

    def _finish(self) -> None:
        (job,) = value(self._connection, "SELECT pgqueue_cancel(ARRAY[pgqueue_enqueue('a.b')])")
        self.kept[job] = self.now

    def _upkeep(self) -> None:
        said: list[str] = []
        while not said or said[-1].startswith(("emptied", "moved", "restarted")):
            said.append(rotate(self._connection))
        if not any(each.startswith("emptied") for each in said):
            return
        left = {row[0] for row in self._connection.execute("SELECT id FROM pgqueue_job").fetchall()}
        for job in self.kept.keys() - left:
            self.dropped.append((self.now, self.now - self.kept.pop(job)))
