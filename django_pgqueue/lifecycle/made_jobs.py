"""The ``Job`` that a call has made, or has found."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from ..models import Job

if TYPE_CHECKING:
    from datetime import datetime

    from ..unique import EnqueueOutcome
    from .calls import Call

__all__ = ["new_job", "other_job"]


def new_job(call: Call, pk: int, run_after: datetime, expires_at: datetime | None, now: datetime) -> Job:
    """Return the job that a call has made, without reading it. Of its parents, none is over."""
    options = call.options
    links = options.links or {}
    waits = "after" in links
    job = Job(
        id=pk, shelf=0, status=Job.Status.BLOCKED if waits else Job.Status.PENDING,
        task_path=options.task_path, args=json.loads(call.args),
        kwargs=json.loads(call.kwargs), metadata=json.loads(options.metadata), queue_name=options.queue_name,
        priority=options.priority, run_after=run_after, expires_at=expires_at, enqueued_at=now,
        max_attempts=options.max_attempts, timeout=options.timeout, on_lost=options.on_lost, attempts=0,
        forgiven_attempts=0, crash_count=0, lost_in_a_row=0, marks=0, current_step="",
        waiting_reason="", errors=[], error_fingerprint="",
        limit_key=call.limit_key, group_key=call.group_key,
        line=pk if call.limit_key is not None and run_after <= now else None,
        unique_key=call.unique_key,
        unique_scope=options.unique.scope if options.unique is not None else None,
        context=None if call.context is None else json.loads(call.context),
        batch_id=links.get("batch"), parent_ids=links.get("after"),
    )  # fmt: skip
    job.enqueue_outcome = "created"
    return job


def other_job(alias: str, pk: int, outcome: EnqueueOutcome) -> Job:
    """Return the job that has the unique key of a call, or one that has parents, as it is now.

    Within the window of the key it may be over, and its retention as well. Then only its id is known, and
    reading another field raises ``Job.DoesNotExist``.
    """
    job = Job.objects.using(alias).filter(pk=pk).first() or Job.from_db(alias, ["id"], [pk])
    job.enqueue_outcome = outcome
    return job
