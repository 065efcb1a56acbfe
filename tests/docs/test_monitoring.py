"""The statements of the page "Monitoring and alerting": each one counts what it says, and nothing else."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connections
from django.utils import timezone

from django_pgqueue.models.statistics import HISTOGRAM_BOUNDS

from ..support.factories import JobFactory, JobStatFactory, WorkerFactory
from .shop import statements

pytestmark = pytest.mark.django_db


def ask(name: str) -> list[dict[str, Any]]:
    with connections["default"].cursor() as cursor:
        cursor.execute(statements(f"monitor/{name}"))
        names = [column.name for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def ago(**time: float) -> Any:
    return timezone.now() - timedelta(**time)


def test_the_depth_and_age_of_queues() -> None:
    JobFactory.create(queue_name="mail", run_after=ago(minutes=10))
    JobFactory.create(queue_name="mail")
    JobFactory.create(queue_name="mail", scheduled=True)
    JobFactory.create(queue_name="mail", retrying=True)
    JobFactory.create(queue_name="slow", running=True, run_after=ago(hours=1))
    JobFactory.create(queue_name="mail", done=True)
    mail, slow = ask("queues")
    assert [mail[name] for name in ("queue_name", "ready", "scheduled", "retrying")] == ["mail", 2, 1, 1]
    assert 600 <= mail["oldest_ready_seconds"] < 660
    assert [slow[name] for name in ("queue_name", "ready", "running")] == ["slow", 0, 1]
    assert slow["oldest_ready_seconds"] == 0


def test_queues_without_a_live_worker() -> None:
    for name in ("mail", "reports", "slow"):
        JobFactory.create(queue_name=name)
    JobFactory.create(queue_name="later", scheduled=True)
    WorkerFactory.create(queues=["mail"])
    WorkerFactory.create(queues=["reports"], heartbeat_at=ago(minutes=1))
    assert [found["queue_name"] for found in ask("unserved")] == ["reports", "slow"]
    WorkerFactory.create(exclude_queues=["slow"])
    assert [found["queue_name"] for found in ask("unserved")] == ["slow"]
    WorkerFactory.create()  # of all queues
    assert ask("unserved") == []


def test_workers_alive_and_silent() -> None:
    WorkerFactory.create_batch(2)
    WorkerFactory.create(heartbeat_at=ago(minutes=1))
    assert ask("workers") == [{"alive": 2, "silent": 1}]


def test_recent_failures() -> None:
    JobFactory.create_batch(2, queue_name="mail", failed=True)
    JobFactory.create(queue_name="mail", failed=True, finished_at=ago(minutes=6))
    JobFactory.create(queue_name="mail", retrying=True)
    JobFactory.create(queue_name="audit", done=True, shelf=9)  # kept for longer, but not failed
    (found,) = ask("failures")
    assert (found["queue_name"], found["error_class"], found["failed"]) == (
        "mail", "shop.errors.GatewayDown", 2,
    )  # fmt: skip


def test_what_ran_in_each_minute() -> None:
    JobStatFactory.create(done=10, failed=1, retried=2, cancelled=3)
    JobStatFactory.create(done=5, task_path="tests.app.tasks.other")
    JobStatFactory.create(minute=ago(hours=2), done=100)
    (minute,) = ask("throughput")
    assert [minute[name] for name in ("done", "retried", "failed", "cancelled")] == [15, 2, 1, 3]


def test_jobs_that_run_for_long() -> None:
    worker = WorkerFactory.create(host="app-7")
    long = JobFactory.create(running=True, worker=worker.pk, last_attempted_at=ago(hours=1))
    JobFactory.create(running=True, worker=worker.pk)
    (found,) = ask("running")
    assert (found["id"], found["host"]) == (long.pk, "app-7")
    assert found["running_for"] >= timedelta(hours=1)


def test_percentiles_are_upper_bounds_of_classes() -> None:
    """Of 100 attempts, 94 took up to 4 ms, 5 up to 1.024 s and one longer than the last bound."""

    def histogram(**counts: int) -> list[int]:
        return [counts.get(f"class_{place}", 0) for place in range(len(HISTOGRAM_BOUNDS) + 1)]

    JobStatFactory.create(run_histogram=histogram(class_2=94))
    JobStatFactory.create(run_histogram=histogram(class_10=5, class_23=1), queue_name="other")
    JobStatFactory.create(run_histogram=histogram(class_5=1000), minute=ago(hours=2))
    (found,) = ask("percentiles")
    assert found["attempts"] == 100
    assert [float(found[name]) for name in ("p50", "p95", "p99")] == pytest.approx(
        [HISTOGRAM_BOUNDS[2], HISTOGRAM_BOUNDS[10], HISTOGRAM_BOUNDS[10]]
    )
    JobStatFactory.create(run_histogram=histogram(class_23=5), task_path="tests.app.tasks.slow")
    assert float(ask("percentiles")[1]["p50"]) == pytest.approx(2 * HISTOGRAM_BOUNDS[-1])


def test_the_sizes_of_the_partitions() -> None:
    found = ask("sizes")
    assert len(found) == 10
    assert {"pgqueue_job_live", "pgqueue_job_past_1", "pgqueue_job_kept"} <= {
        row["table_name"] for row in found
    }
    assert all(row["bytes"] > 0 for row in found)
