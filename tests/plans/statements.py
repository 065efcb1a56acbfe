"""The names of tables and indexes, and the parameters of the claim."""

from __future__ import annotations

from typing import Any

from tests.support.jobs import Range

LIVE, HISTORY = "pgqueue_job_live", ("pgqueue_job_past", "pgqueue_job_kept")
CLAIM_INDEX = "pgqueue_job_claim"


def claim_parameters(*ranges: Range, limit: int = 50) -> dict[str, Any]:
    queues, priorities, marks, mark_ids = (list(column) for column in zip(*ranges, strict=True))
    return {
        "queues": queues, "priorities": priorities, "marks": marks, "mark_ids": mark_ids, "limit": limit,
        "worker": 1, "lease": 1, "first": [],
    }  # fmt: skip
