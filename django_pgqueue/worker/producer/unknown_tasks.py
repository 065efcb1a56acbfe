"""Log one line per minute for each task that the worker does not know, regardless of how many jobs it has.

new --a job--> logged at once; for a minute, more jobs are only counted
counted --the minute is over--> logged with the count, and counted for another minute; without jobs: forgotten
"""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING

from ...job_log import logger
from ...wording import counted

if TYPE_CHECKING:
    from ...lifecycle.claimed import Claimed

__all__ = ["UnknownTasks"]

TELL_EVERY = 60.0  # seconds


class _Path:
    __slots__ = ("count", "queue_name", "reason", "told")

    def __init__(self, told: float) -> None:
        self.told = told
        self.count = 0
        self.queue_name = self.reason = ""


class UnknownTasks:
    """The unknown tasks of one worker process. Used only by the producer."""

    def __init__(self) -> None:
        self._paths: dict[str, _Path] = {}

    def met(self, row: Claimed, reason: str | None) -> None:
        """A job of such a task has been requeued."""
        now = monotonic()
        path = self._paths.get(row.task_path)
        is_first = path is None
        if path is None:
            path = self._paths[row.task_path] = _Path(now)
        path.count += 1
        path.queue_name, path.reason = row.queue_name, reason or ""
        if is_first:
            _tell(row.task_path, path, now)

    def tell(self, now: float, *, all_of_them: bool = False) -> None:
        """Log the lines that are due, or the lines of all tasks that have counts."""
        due = [name for name, path in self._paths.items() if all_of_them or now - path.told >= TELL_EVERY]
        for name in due:
            path = self._paths[name]
            if path.count:
                _tell(name, path, now)
            else:
                del self._paths[name]


def _tell(task_path: str, path: _Path, now: float) -> None:
    logger.warning(
        "the task %s is unknown here: requeued %s, the last one in queue %s: %s",
        task_path,
        counted(path.count, "job"),
        path.queue_name,
        path.reason,
        extra={"task_path": task_path, "queue_name": path.queue_name, "count": path.count},
    )
    path.count = 0
    path.told = now
