"""Alerts: the queue reports to the project what went wrong, and when that has ended.

The supervisors of workers look every ``ALERTS_INTERVAL`` seconds, and send each change once over all workers,
to the callables that the setting ``ALERTS`` names, and with the signal ``alert_sent``
(``maintenance/alerts.py``).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from django.dispatch import Signal

__all__ = ["Alert", "Kind", "alert_sent"]

Kind = Literal[
    "age", "depth", "no_worker", "few_workers", "unserved", "foreign_lock", "lost_jobs", "new_failure",
    "job_failed",
]  # fmt: skip

#: Sent for each alert, with the argument ``alert``. The sender is the class ``Alert``.
alert_sent = Signal()


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """Something that went wrong, or that has ended. ``str()`` gives the text."""

    kind: Kind
    """Events ("new_failure", "job_failed") only happen. Others are problems, which are raised and end."""
    is_over: bool = False
    """Whether the problem has ended."""
    database: str
    """The alias of the database of the queue."""
    text: str
    """What it is about, in one line."""
    at: datetime
    """When it was noticed, on the clock of the database."""
    queue_name: str = ""
    """The queue, if the problem is about one."""
    fingerprint: str = ""
    """The group of the failures, for events."""
    error_class: str = ""
    tasks: tuple[str, ...] = ()
    """The paths of tasks in which the failure was seen, at most 100."""
    job_id: int | None = None
    """The newest job of the group."""
    count: int = 0
    """How many jobs have failed for good since the last alert about the group."""

    def __str__(self) -> str:
        return self.text
