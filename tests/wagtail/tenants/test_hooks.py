"""Worker processes enter the schema of each job by the hooks."""

from __future__ import annotations

import pytest
from django.db import connection, transaction
from django_tenants.utils import schema_context

from django_pgqueue import Task, enqueue
from django_pgqueue.testing import RunningWorker

from .shop.tasks import fail_in_schema, read_async_of_tenant, read_nothing

pytestmark = pytest.mark.wagtail


@pytest.mark.promise("tenant-hooks")
@pytest.mark.parametrize("task", [read_nothing, read_async_of_tenant], ids=["sync", "async"])
def test_each_job_runs_in_the_schema_of_its_tenant(worker: RunningWorker, task: Task[[], list[str]]) -> None:
    """The tenants take turns, so that a thread meets another schema than before."""
    jobs = []
    for turn in range(5):
        for name in ("acme", "bolt"):
            with schema_context(name):
                jobs.append((name, enqueue(task.using(unique_key=f"same {turn}"))))
    assert len({job.pk for _, job in jobs}) == len(jobs), "the keys of the tenants are apart"
    for name, job in jobs:
        assert worker.join(job).result == [name, f"{name}@example.com"]
        job.refresh_from_db()
        assert job.tenant == name


@pytest.mark.promise("tenant-hooks")
def test_a_job_without_a_tenant_runs_in_public_also_after_a_failure(worker: RunningWorker) -> None:
    with schema_context("bolt"):
        assert worker.join(enqueue(fail_in_schema)).errors[-1]["message"] == "bolt"
    for _ in range(8):  # on all threads
        job = worker.join(enqueue(read_nothing))
        assert 'relation "shop_order" does not exist' in job.errors[-1]["message"]


@pytest.mark.promise("tenant-hooks")
def test_an_isolated_job(worker: RunningWorker) -> None:
    with schema_context("bolt"), transaction.atomic(), connection.cursor() as cursor:
        job = enqueue(read_nothing)
        cursor.execute("UPDATE pgqueue_job_live SET crash_count = 1 WHERE id = %s", [job.pk])
    assert worker.join(job).result == ["bolt", "bolt@example.com"]
