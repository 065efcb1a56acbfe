"""The last hour by task: the number of jobs for each outcome, and percentiles of their times."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from django.db import connections

from . import display
from .job_texts import breakable
from .percentiles import SHARES, percentile_text

__all__ = ["TaskFigures", "last_hour"]

MOST_TASKS = 50
_SQL = (Path(__file__).parent / "last_hour.sql").read_text(encoding="utf-8")


@dataclass(frozen=True, slots=True)
class TaskFigures:
    """The figures of one task in one queue."""

    queue_name: str
    task_path: str
    done: int
    failed: int
    retried: int
    cancelled: int
    wait_histogram: list[int]
    run_histogram: list[int]

    @property
    def task(self) -> str:
        """The path of the task, which may break between its words."""
        return breakable(self.task_path)

    @property
    def attempts(self) -> list[str]:
        """How many ended how: done, failed, retried, cancelled."""
        counts = (self.done, self.failed, self.retried, self.cancelled)
        return [display.number(count) for count in counts]

    @property
    def waited(self) -> list[str]:
        """Percentiles from due to started, in words."""
        return [percentile_text(self.wait_histogram, share) for share in SHARES]

    @property
    def ran(self) -> list[str]:
        """Percentiles from started to ended, in words."""
        return [percentile_text(self.run_histogram, share) for share in SHARES]


def last_hour(alias: str, queue: str = "", task: str = "") -> list[TaskFigures]:
    """Return the tasks with the most attempts in the last 60 minutes, optionally of one queue or task."""
    with connections[alias].cursor() as cursor:
        cursor.execute(_SQL, {"queue": queue, "task": task, "most": MOST_TASKS})
        return [TaskFigures(*row) for row in cursor.fetchall()]
