"""Failures as reports note them, and what maintenance does with them."""

from __future__ import annotations

from typing import Any

from .jobs import value
from .sessions import Connection

__all__ = ["fold", "note"]


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
