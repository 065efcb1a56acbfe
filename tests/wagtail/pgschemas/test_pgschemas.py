"""The queue in the schema ``public``, and tasks that read and write the tables of a tenant."""

from __future__ import annotations

import pytest
from django_pgschemas.schema import Schema, deactivate

from ..in_schemas import (  # noqa: F401
    Project,
    test_a_job_commits_with_the_rows_of_its_tenant,
    test_a_job_without_a_tenant_runs_in_public_also_after_a_failure,
    test_an_atomic_task_writes_and_enqueues_in_its_tenant,
    test_an_isolated_job,
    test_each_job_runs_in_the_schema_of_its_tenant,
    test_the_tables_of_the_queue_are_in_public_alone,
    test_the_test_kit,
)
from .customers.models import Customer
from .shop.models import Order
from .shop.tasks import add_and_enqueue, add_and_fail, read, read_async

pytestmark = pytest.mark.wagtail


@pytest.fixture(scope="module", autouse=True)
def tenants(kept_database: None) -> None:
    """Two tenants, with an order each."""
    for name in ("acme", "bolt"):
        Customer(schema_name=name).save(verbosity=0)
        deactivate()  # what it has migrated is still the current schema
        with Schema.create(name):
            Order.objects.create(email=f"{name}@example.com")


@pytest.fixture
def project() -> Project:
    return Project(Schema.create, Order, read, read_async, read, add_and_enqueue, add_and_fail)
