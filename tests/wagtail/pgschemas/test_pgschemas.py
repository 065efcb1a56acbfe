"""The queue in the schema ``public``, and tasks that read and write the tables of a tenant."""

from __future__ import annotations

import pytest
from django.db import connection, transaction
from django_pgschemas.schema import Schema, deactivate, get_current_schema

from django_pgqueue import Task, enqueue
from django_pgqueue.models import Job
from django_pgqueue.testing import RunningWorker, run_jobs

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


def check_is_in_public(job: Job) -> None:
    assert job.status == "failed"
    assert 'relation "shop_order" does not exist' in job.errors[-1]["message"]


def test_the_tables_of_the_queue_are_in_public_alone() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT DISTINCT schemaname::text FROM pg_tables WHERE tablename LIKE 'pgqueue%'")
        assert cursor.fetchall() == [("public",)]


@pytest.mark.promise("pgschemas")
@pytest.mark.parametrize("task", [read, read_async], ids=["sync", "async"])
def test_each_job_runs_in_the_schema_of_its_tenant(worker: RunningWorker, task: Task[[], list[str]]) -> None:
    """The tenants take turns, so that a thread meets another schema than before."""
    jobs = []
    for turn in range(5):
        for name in ("acme", "bolt"):
            with Schema.create(name):
                jobs.append((name, enqueue(task.using(unique_key=f"same {turn}"))))
    assert len({job.pk for _, job in jobs}) == len(jobs), "the keys of the tenants are apart"
    for name, job in jobs:
        assert worker.join(job).result == [f"{name}@example.com"]
        assert Job.objects.get(pk=job.pk).tenant == name


@pytest.mark.promise("pgschemas")
def test_a_job_commits_with_the_rows_of_its_tenant(worker: RunningWorker) -> None:
    with Schema.create("acme"):
        with pytest.raises(LookupError), transaction.atomic():  # noqa: PT012
            Order.objects.create(email="gone@example.com")
            lost = enqueue(read)
            raise LookupError
        assert not Job.objects.filter(pk=lost.pk).exists()
        assert worker.join(enqueue(read)).result == ["acme@example.com"]


@pytest.mark.promise("pgschemas")
def test_an_atomic_task_writes_and_enqueues_in_its_tenant(worker: RunningWorker) -> None:
    with Schema.create("bolt"):
        after = worker.join(enqueue(add_and_enqueue)).result
        assert after is not None
        assert worker.join(after).result == ["bolt@example.com", "task@example.com"]
        assert Job.objects.get(pk=after).tenant == "bolt"
        Order.objects.filter(email="task@example.com").delete()


@pytest.mark.promise("pgschemas")
def test_a_job_without_a_tenant_runs_in_public_also_after_a_failure(worker: RunningWorker) -> None:
    with Schema.create("bolt"):
        assert worker.join(enqueue(add_and_fail)).status == "failed"
    for _ in range(8):  # on all threads
        check_is_in_public(worker.join(enqueue(read)))


@pytest.mark.promise("pgschemas")
def test_an_isolated_job(worker: RunningWorker) -> None:
    with Schema.create("bolt"), transaction.atomic(), connection.cursor() as cursor:
        job = enqueue(read)
        cursor.execute("UPDATE pgqueue_job_live SET crash_count = 1 WHERE id = %s", [job.pk])
    assert worker.join(job).result == ["bolt@example.com"]


@pytest.mark.promise("pgschemas")
def test_the_test_kit() -> None:
    with transaction.atomic():
        with Schema.create("acme"):
            job = enqueue(read)
        run_jobs()
        job.refresh_from_db()
        assert job.result == ["acme@example.com"]
        assert get_current_schema().schema_name == "public"
        transaction.set_rollback(True)
