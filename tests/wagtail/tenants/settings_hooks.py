"""The same project, in which two hooks make the schema the tenant of each job: no task needs a decorator."""

from __future__ import annotations

from .settings import *  # noqa: F403

EXTRA_SET_TENANT_METHOD_PATH = ""
PGQUEUE = {
    "BEFORE_ENQUEUE": ["tests.wagtail.tenants.by_tenant.note_schema"],
    "AROUND_ATTEMPT": ["tests.wagtail.tenants.by_tenant.in_schema"],
}
