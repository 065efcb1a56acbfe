"""Worker processes enter the schema of each job by the hooks."""

from __future__ import annotations

import pytest
from django_tenants.utils import schema_context

from ..in_schemas import (  # noqa: F401
    Project,
    test_a_job_without_a_tenant_runs_in_public_also_after_a_failure,
    test_an_isolated_job,
    test_each_job_runs_in_the_schema_of_its_tenant,
)
from .shop.models import Order
from .shop.tasks import fail_in_schema, read_async_of_tenant, read_nothing

pytestmark = pytest.mark.wagtail


@pytest.fixture
def project() -> Project:
    return Project(
        schema_context, Order, read_nothing, read_async_of_tenant, read_nothing, add_and_fail=fail_in_schema
    )
