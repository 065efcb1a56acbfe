"""What holds in projects whose tenants have schemas. A module of tests imports what holds in its project.

Its fixture ``project`` says how to enter a schema, and which tasks there are.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import pytest
from django.db import ProgrammingError, connection, transaction

from django_pgqueue import enqueue
from django_pgqueue.models import Job
from django_pgqueue.testing import RunningWorker, run_jobs


class Project(NamedTuple):
    """The tasks return the emails of the orders in their schema; some return its name, too."""

    enter: Callable[[str], AbstractContextManager[Any]]
    order: Any
    read: Any
    read_async: Any
    read_nothing: Any
    """A task that reads in `public` if its job has no tenant."""
    add_and_enqueue: Any = None
    add_and_fail: Any = None


def emails(job: Job) -> list[str]:
    """Return the result of a job, without the name of the schema."""
    return [text for text in job.result or () if "@" in text]


def check_is_in_public(job: Job) -> None:
    assert job.status == "failed"
    assert 'relation "shop_order" does not exist' in job.errors[-1]["message"]


def test_the_tables_of_the_queue_are_in_public_alone() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT DISTINCT schemaname::text FROM pg_tables WHERE tablename LIKE 'pgqueue%'")
        assert cursor.fetchall() == [("public",)]


@pytest.mark.promise("pgschemas", "tenant-hooks")
@pytest.mark.parametrize("kind", ["read", "read_async"])
def test_each_job_runs_in_the_schema_of_its_tenant(
    worker: RunningWorker, project: Project, kind: str
) -> None:
    """The tenants take turns, so that a thread meets another schema than before."""
    jobs = []
    for turn in range(5):
        for name in ("acme", "bolt"):
            with project.enter(name):
                jobs.append((name, enqueue(getattr(project, kind).using(unique_key=f"same {turn}"))))
    assert len({job.pk for _, job in jobs}) == len(jobs), "the keys of the tenants are apart"
    for name, job in jobs:
        assert emails(worker.join(job)) == [f"{name}@example.com"]
        assert Job.objects.get(pk=job.pk).tenant == name


@pytest.mark.promise("pgschemas", "tenant-transaction")
def test_a_job_commits_with_the_rows_of_its_tenant(worker: RunningWorker, project: Project) -> None:
    with project.enter("acme"):
        with pytest.raises(LookupError), transaction.atomic():  # noqa: PT012
            project.order.objects.create(email="gone@example.com")
            lost = enqueue(project.read)
            raise LookupError
        assert not Job.objects.filter(pk=lost.pk).exists()
        with transaction.atomic():
            row = project.order.objects.create(email="kept@example.com")
            kept = enqueue(project.read)
        assert emails(worker.join(kept)) == ["acme@example.com", "kept@example.com"]
        row.delete()


@pytest.mark.promise("pgschemas", "tenant-tables")
def test_an_atomic_task_writes_and_enqueues_in_its_tenant(worker: RunningWorker, project: Project) -> None:
    with project.enter("bolt"):
        after: Any = worker.join(enqueue(project.add_and_enqueue)).result
        assert emails(worker.join(after)) == ["bolt@example.com", "task@example.com"]
        project.order.objects.filter(email="task@example.com").delete()


@pytest.mark.promise("pgschemas", "tenant-left", "tenant-hooks")
def test_a_job_without_a_tenant_runs_in_public_also_after_a_failure(
    worker: RunningWorker, project: Project
) -> None:
    with project.enter("bolt"):
        assert worker.join(enqueue(project.add_and_fail)).errors[-1]["class"] == "builtins.LookupError"
    for _ in range(8):  # on all threads
        check_is_in_public(worker.join(enqueue(project.read_nothing)))


@pytest.mark.promise("pgschemas", "tenant-tables", "tenant-hooks")
def test_an_isolated_job(worker: RunningWorker, project: Project) -> None:
    with project.enter("bolt"), transaction.atomic(), connection.cursor() as cursor:
        job = enqueue(project.read)
        cursor.execute("UPDATE pgqueue_job_live SET crash_count = 1 WHERE id = %s", [job.pk])
    assert emails(worker.join(job)) == ["bolt@example.com"]
    assert "runs isolated" in worker.log


def test_the_test_kit(project: Project) -> None:
    with transaction.atomic():
        with project.enter("acme"):
            job = enqueue(project.read)
        run_jobs()
        job.refresh_from_db()
        assert emails(job) == ["acme@example.com"]
        with pytest.raises(ProgrammingError), transaction.atomic():  # it is in public again
            project.order.objects.exists()
        transaction.set_rollback(True)
