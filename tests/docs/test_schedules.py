"""The examples of schedules: what they declare, and what runs when they are due."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connections
from django.test import override_settings

from django_pgqueue import enqueue
from django_pgqueue.checks.tasks import check_schedules
from django_pgqueue.maintenance.schedules import synchronize
from django_pgqueue.models import Job, Schedule, ScheduleRun
from django_pgqueue.schedules import declare
from django_pgqueue.schedules.fire import fire_due

from .shop import example, in_shop, setting, work


@pytest.fixture
def shop_schedules(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The module, and no other declarations; a second test in this process finds it imported already."""
    module = example("schedules")
    of_the_shop = {
        name: each for name, each in declare._declared.items() if each[1].declared_by == module.__name__
    }
    monkeypatch.setattr(declare, "_declared", of_the_shop)
    yield module
    # A worker that a later test starts must not find them.
    monkeypatch.setattr(declare, "_declared", {})


def rows(query: str, parameters: Any) -> list[Any]:
    with connections["default"].cursor() as cursor:
        cursor.execute(query, parameters)
        return list(cursor.fetchall())


@in_shop
def test_the_examples_are_written_fire_and_run(shop_schedules: Any) -> None:
    synchronize("default")
    assert {row.name for row in Schedule.objects.all()} == {
        "shop.schedules.build_daily_report", "shop.schedules.sync_stock",
        "summary-of-the-week", "summary-of-the-month", "shop.schedules.rebuild_search_index",
    }  # fmt: skip
    due = datetime.now(UTC) - timedelta(seconds=1)
    Schedule.objects.update(next_run_at=due, since=due - timedelta(days=1), jitter=timedelta(0))
    assert fire_due(rows, {}) == 5
    work()
    assert {job.status for job in Job.objects.all()} == {"done"}
    assert example("models").DailyReport.objects.get().text == "0 orders"
    results = {job.metadata["schedule"]: job.result for job in Job.objects.all()}
    assert results["summary-of-the-week"] == "the summary of the week"


@in_shop
def test_a_run_of_a_unique_task_meets_the_job_of_a_view(shop_schedules: Any) -> None:
    synchronize("default")
    job = enqueue(shop_schedules.rebuild_search_index)
    due = datetime.now(UTC) - timedelta(seconds=1)
    hourly = Schedule.objects.filter(pk="shop.schedules.rebuild_search_index")
    hourly.update(next_run_at=due, since=due - timedelta(days=1))
    fire_due(rows, {})
    run = ScheduleRun.objects.get()
    assert (run.outcome, run.job_id) == ("existing", job.pk)
    assert Job.objects.get().pk == job.pk


@in_shop
def test_pause_resume_and_run_now(shop_schedules: Any) -> None:
    synchronize("default")
    shop_schedules.stop_for_the_audit()
    row = Schedule.objects.get(pk="summary-of-the-month")
    assert (row.pause_author, row.pause_reason) == ("kim", "the books are being audited")
    shop_schedules.go_on()
    row.refresh_from_db()
    assert row.is_active
    assert Job.objects.get().metadata["schedule"] == "summary-of-the-month"


@in_shop
def test_the_example_of_settings_is_valid(shop_schedules: Any) -> None:
    with override_settings(**setting("schedules")):
        assert check_schedules(None) == []
        synchronize("default")
    assert Schedule.objects.get(pk="stock").every == timedelta(minutes=10)
