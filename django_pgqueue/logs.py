"""``JobFilter``: the log records of a job carry its id."""

from __future__ import annotations

import logging
from typing import Any

from .jobs.current import RUNNING

__all__ = ["JobFilter"]

_FIELDS = ("job_id", "task_path", "queue_name", "attempt")


class JobFilter(logging.Filter):
    """Adds ``job_id``, ``task_path``, ``queue_name`` and ``attempt`` to each record. Add it to handlers.

    Records that no job has emitted get ``nothing`` instead. Values that a record has already are kept, such
    as the ones of the line about the end of a job.
    """

    def __init__(self, nothing: Any = "-") -> None:
        super().__init__()
        self.nothing = nothing

    def filter(self, record: logging.LogRecord) -> bool:
        """Add the values, and keep the record."""
        values: tuple[Any, ...] = (self.nothing,) * len(_FIELDS)
        if (running := RUNNING.get(None)) is not None:
            row = running.row
            values = (row.id, row.task_path, row.queue_name, row.attempts - row.forgiven_attempts)
        for name, value in zip(_FIELDS, values, strict=True):
            if not hasattr(record, name):
                setattr(record, name, value)
        return True
