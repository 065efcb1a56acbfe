"""The settings. The hooks take the place of the context, so tasks need no decorator."""

from __future__ import annotations

from tests.wagtail.tenants.settings import *  # noqa: F403

EXTRA_SET_TENANT_METHOD_PATH = ""
PGQUEUE = {
    "BEFORE_ENQUEUE": ["tests.wagtail.tenants.by_tenant.note_schema"],
    "AROUND_ATTEMPT": ["tests.wagtail.tenants.by_tenant.in_schema"],
}
