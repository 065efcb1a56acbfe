"""The queue in the schema ``public``, and tasks that read and write the tables of a tenant."""

from __future__ import annotations

import pytest
from django.db import connection, transaction
from django_tenants.utils import schema_context, schema_exists

from django_pgqueue import cancel, enqueue, retry, why
from django_pgqueue.models import Job
from django_pgqueue.testing import RunningWorker, run_jobs, running_worker

from .customers.models import Customer
from .shop.models import Order
from .shop.tasks import (
    add_and_enqueue,
    add_and_fail,
    emails,
    read_async,
    read_carried,
    read_named,
    read_nothing,
    set_schema,
)

pytestmark = pytest.mark.wagtail


def check_is_in_public(job: Job) -> None:
    assert job.status == "failed"
    assert 'relation "shop_order" does not exist' in job.errors[-1]["message"]


def test_the_tables_of_the_queue_are_in_public_alone() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT DISTINCT schemaname::text FROM pg_tables WHERE tablename LIKE 'pgqueue%'")
        assert cursor.fetchall() == [("public",)]


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
    for job in jobs:
        assert worker.join(job).result == [name, f"{name}@example.com"]


@pytest.mark.promise("tenant-transaction")
def test_a_job_commits_with_the_rows_of_its_tenant(worker: RunningWorker) -> None:
    with schema_context("acme"):
        with pytest.raises(LookupError), transaction.atomic():  # noqa: PT012
            Order.objects.create(email="gone@example.com")
            lost = enqueue(read_carried)
            raise LookupError
        assert not Job.objects.filter(pk=lost.pk).exists()
        with transaction.atomic():
            row = Order.objects.create(email="kept@example.com")
            kept = enqueue(read_carried)
        assert worker.join(kept).result == ["acme", "acme@example.com", "kept@example.com"]
        row.delete()


@pytest.mark.promise("tenant-tables")
def test_an_atomic_task_writes_and_enqueues_in_its_tenant(worker: RunningWorker) -> None:
    with schema_context("bolt"):
        after = worker.join(enqueue(add_and_enqueue)).result
        assert after is not None
        assert worker.join(after).result == ["bolt", "bolt@example.com", "task@example.com"]
        Order.objects.filter(email="task@example.com").delete()


@pytest.mark.promise("tenant-left")
def test_a_failed_task_leaves_the_schema(worker: RunningWorker) -> None:
    """And a task that enters none runs in public, wherever it was enqueued."""
    with schema_context("bolt"):
        assert worker.join(enqueue(add_and_fail)).status == "failed"
        for _ in range(8):  # on all threads
            check_is_in_public(worker.join(enqueue(read_nothing)))


def test_the_test_kit() -> None:
    with transaction.atomic():
        with schema_context("acme"):
            job = enqueue(read_carried)
        run_jobs()
        job.refresh_from_db()
        assert job.result == ["acme", "acme@example.com"]
        assert connection.schema_name == "public"  # type: ignore[attr-defined]
        transaction.set_rollback(True)


@pytest.mark.promise("tenant-new")
def test_a_new_tenant_while_workers_run(worker: RunningWorker) -> None:
    Customer(schema_name="corp", name="corp").save(verbosity=0)
    with schema_context("corp"):
        assert emails() == ["corp"]
        assert worker.join(enqueue(read_carried)).result == ["corp"]
    with schema_context("public"):
        Customer.objects.get(schema_name="corp").delete()
    assert not schema_exists("corp")


@pytest.mark.promise("tenant-tables")
def test_an_isolated_job(worker: RunningWorker) -> None:
    with schema_context("bolt"), transaction.atomic(), connection.cursor() as cursor:
        job = enqueue(read_carried)
        cursor.execute("UPDATE pgqueue_job_live SET crash_count = 1 WHERE id = %s", [job.pk])
    assert worker.join(job).result == ["bolt", "bolt@example.com"]
    assert "runs isolated" in worker.log


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
