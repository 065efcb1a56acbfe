"""The examples of progress."""

from __future__ import annotations

import json
from datetime import date
from typing import Any

import pytest
from django.db import connections
from django.test import RequestFactory

from django_pgqueue import enqueue
from django_pgqueue.models import Job, JobProgress
from django_pgqueue.tasks.progress import Progress
from django_pgqueue.testing import call_task, reported_progress

from .shop import example, fresh, in_shop, run, statements


@pytest.fixture
def orders(shop: None) -> Any:
    models = example("models")
    return models.Order.objects.bulk_create(models.Order(email=f"{n}@example.com", total=n) for n in range(3))


@in_shop
def test_a_report_counts_its_orders(orders: Any) -> None:
    models = example("models")
    report = models.DailyReport.objects.create(day=date(2026, 11, 23))
    job = enqueue(example("progress").write_report, report.pk)
    done = run(job)
    report.refresh_from_db()
    assert (done.status, done.result, report.text) == ("done", 3, "3 in all")
    with reported_progress() as reported:
        call_task(example("progress").write_report, report.pk)
    assert reported[0] == Progress(1, 3, "0@example.com")
    assert reported[-1] == Progress(3, 3, "saving")


@in_shop
def test_loops_are_tracked(orders: Any) -> None:
    with reported_progress() as reported:
        assert call_task(example("progress").remind) == 3
        assert call_task(example("progress").fetch) == 3
    assert (2, 3, f"order {orders[2].pk}") in reported
    assert reported[-1] == (3, 3, "")


@in_shop
def test_a_page_reads_the_progress(orders: Any) -> None:
    def read(job: Job) -> Any:
        request = RequestFactory().get("/")
        return json.loads(example("progress_view").report_progress(request, job.pk).content)

    job = enqueue(example("progress").remind)
    assert read(job) == {"status": "pending", "fraction": None, "note": ""}
    Job.objects.filter(pk=job.pk).update(marks=8)
    JobProgress.objects.create(job=job, done=1, total=4, note="here")
    assert read(job) == {"status": "pending", "fraction": 0.25, "note": "here"}
    assert list(Job.objects.filter(live_progress__note="here")) == [job]


@in_shop
def test_progress_from_sql(orders: Any) -> None:
    job = enqueue(example("progress").remind)
    statement = statements("progress").replace("57", str(job.pk))
    with connections["default"].cursor() as cursor:
        cursor.execute(statement)
        assert cursor.fetchone() == (False,)  # it does not run
        cursor.execute("UPDATE pgqueue_job_live SET status = 'running', lease = 1 WHERE id = %s", [job.pk])
        cursor.execute(statement)
        assert cursor.fetchone() == (True,)
    assert fresh(job).progress == (40, 100, "reading")
