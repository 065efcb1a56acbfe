"""Claimed rows that are in no database, for unit tests of the worker."""

from __future__ import annotations

from typing import Any

from django_pgqueue.jobs.claim import Claimed

__all__ = ["claimed"]


def claimed(pk: int = 1, task_path: str = "tests.app.tasks.noop", **changes: Any) -> Claimed:
    """Return a row as a claim returns it."""
    moment = "2026-11-21 01:38:16.123456+00"
    row = Claimed(
        id=pk, lease=7, task_path=task_path, args="[]", kwargs="{}", queue_name="default", priority=0,
        run_after=moment, attempts=1, forgiven_attempts=0, max_attempts=5, timeout=None, on_lost="rerun",
        crash_count=0, metadata="{}", expires_at=None, expired=None, enqueued_at=moment, started_at=moment,
        last_attempted_at=moment, errors="[]", waited=0.0, group_key=None,
        context=None, marks=0,
    )  # fmt: skip
    return row._replace(**changes)
