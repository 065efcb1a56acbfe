"""Let the schema be the tenant of each job, by two hooks: no task needs a decorator, and keys are apart."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from django.db import connection
from django_tenants.utils import get_public_schema_name, schema_context

from django_pgqueue import BoundTask, CurrentJob


def note_schema(call: BoundTask) -> BoundTask | None:
    """BEFORE_ENQUEUE: the schema of the caller is the tenant of the job."""
    schema: str = connection.schema_name  # type: ignore[attr-defined]
    return None if schema == get_public_schema_name() else call.using(tenant=schema)


def in_schema(job: CurrentJob) -> AbstractContextManager[Any]:
    """AROUND_ATTEMPT: a sync task runs in the schema of its tenant."""
    entered: AbstractContextManager[Any] = schema_context(job.tenant or get_public_schema_name())
    return entered
