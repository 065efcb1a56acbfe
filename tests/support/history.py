"""Simulate months of history in seconds. The stored times are moved back, because no clock can be set."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from .jobs import rotate, value
from .sessions import Connection

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
