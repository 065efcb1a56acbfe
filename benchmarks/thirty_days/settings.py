"""Django settings of ``benchmarks.thirty_days``: retentions that all have ended for something by day ten."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from benchmarks.settings import *  # noqa: F403

WEEK = timedelta(days=7)
PGQUEUE: dict[str, Any] = {  # type: ignore[no-redef]
    "TASK_MODULES": ["thirty_days.tasks"],
    "RETENTION": WEEK,
    "FAILED_RETENTION": WEEK,
    "STATISTICS_RETENTION": WEEK,
    "MAX_ATTEMPTS": 2,
    "BACKOFF_BASE": 60,
}
