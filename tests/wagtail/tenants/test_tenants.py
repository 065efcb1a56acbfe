"""The queue in the schema ``public``, and tasks that read and write the tables of a tenant."""

from __future__ import annotations

import pytest
from django.db import transaction
from django_tenants.utils import schema_context, schema_exists

from django_pgqueue import cancel, enqueue, retry, why
from django_pgqueue.models import Job
from django_pgqueue.testing import RunningWorker, running_worker

from ..in_schemas import Project, check_is_in_public
from .customers.models import Customer
from .shop import tasks
from .shop.models import Order
from .shop.tasks import emails, read_async, read_carried, read_named, read_nothing, set_schema

pytestmark = pytest.mark.wagtail


@pytest.fixture
def project() -> Project:
    made = (
        tasks.read_carried,
        tasks.read_async,
        tasks.read_nothing,
        tasks.add_and_enqueue,
        tasks.add_and_fail,
    )
    return Project(schema_context, Order, *made)


@pytest.mark.parametrize("sends", [False, True])
@pytest.mark.promise("tenant-left")
def test_a_schema_that_a_task_sets_does_not_reach_the_next_job(tenants: None, sends: bool) -> None:
    """This comes before the other worker starts, so that one thread runs both jobs."""
    with running_worker(threads=1) as worker:
        assert worker.join(enqueue(set_schema, "acme", sends)).status == "done"
        check_is_in_public(worker.join(enqueue(read_nothing)))


@pytest.mark.parametrize("name", ["acme", "bolt"])
@pytest.mark.promise("tenant-tables")
def test_a_task_runs_in_the_schema_that_it_enters(worker: RunningWorker, name: str) -> None:
    with schema_context(name):
        jobs = enqueue(read_carried), enqueue(read_async), enqueue(read_named, name)
        enters_none = enqueue(read_nothing)
    check_is_in_public(worker.join(enters_none))
    for job in jobs:
        assert worker.join(job).result == [name, f"{name}@example.com"]


@pytest.mark.promise("tenant-new")
def test_a_new_tenant_while_workers_run(worker: RunningWorker) -> None:
    Customer(schema_name="corp", name="corp").save(verbosity=0)
    with schema_context("corp"):
        assert emails() == ["corp"]
        assert worker.join(enqueue(read_carried)).result == ["corp"]
    with schema_context("public"):
        Customer.objects.get(schema_name="corp").delete()
    assert not schema_exists("corp")


def test_jobs_are_changed_and_explained_in_the_schema_of_a_tenant() -> None:
    with schema_context("acme"), transaction.atomic():
        job = enqueue(read_carried)
        assert why(job).text
        assert cancel(job)
        assert retry(job)
        assert Job.objects.get(pk=job.pk).status == "pending"
        transaction.set_rollback(True)


@pytest.mark.promise("tenant-keys")
def test_all_tenants_share_the_keys() -> None:
    with transaction.atomic():
        with schema_context("acme"):
            first = enqueue(read_carried.using(unique_key="one"))
        with schema_context("bolt"):
            assert enqueue(read_carried.using(unique_key="one")).pk == first.pk
        transaction.set_rollback(True)


# The rest comes after the test for which no other worker may run.
from ..in_schemas import (  # noqa: E402, F401
    test_a_job_commits_with_the_rows_of_its_tenant,
    test_a_job_without_a_tenant_runs_in_public_also_after_a_failure,
    test_an_atomic_task_writes_and_enqueues_in_its_tenant,
    test_an_isolated_job,
    test_the_tables_of_the_queue_are_in_public_alone,
    test_the_test_kit,
)
