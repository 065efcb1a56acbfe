"""Let the schema be the tenant of each job, by two hooks."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from django_pgschemas.schema import Schema, get_current_schema

from django_pgqueue import BoundTask, CurrentJob


def note_schema(call: BoundTask) -> BoundTask | None:
    """BEFORE_ENQUEUE: the schema of the caller is the tenant of the job."""
    schema: str = get_current_schema().schema_name
    return None if schema == "public" else call.using(tenant=schema)


def in_schema(job: CurrentJob) -> AbstractContextManager[Any]:
    """AROUND_ATTEMPT: a task runs in the schema of its tenant."""
    entered: AbstractContextManager[Any] = Schema.create(job.tenant or "public")
    return entered
