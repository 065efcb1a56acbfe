"""The statements of the page "Why isn't my job running?": each one finds the reason that it is there for."""

from __future__ import annotations

import re
import runpy
from datetime import timedelta
from typing import Any

import pytest
from django.db import connections
from django.test import override_settings
from django.utils import timezone

from django_pgqueue import enqueue
from django_pgqueue.models import Job

from ..support.factories import JobFactory, WorkerFactory
from ..support.sessions import open_raw
from .shop import EXAMPLES, example, in_shop, run, setting, statements


def ask(name: str, job: int = 1) -> list[dict[str, Any]]:
    """What a statement of the page says about a job."""
    query = re.sub(r"\bid = 1\b", f"id = {job}", statements(f"why/{name}"))
    with connections["default"].cursor() as cursor:
        cursor.execute(query)
        names = [column.name for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


@in_shop
def test_a_job_whose_transaction_has_not_committed() -> None:
    with open_raw() as other:
        other.autocommit = False
        other.execute("SET application_name = 'the shell'")
        row = other.execute("SELECT pgqueue_enqueue('shop.tasks.send_receipt', '[1]')").fetchone()
        assert row is not None
        assert ask("job", row[0]) == []
        (open_one,) = [found for found in ask("transactions") if found["application_name"] == "the shell"]
        assert open_one["state"] == "idle in transaction"
        assert open_one["open_for"] > timedelta(0)
        assert "pgqueue_enqueue" in open_one["last_query"]
        other.commit()
        assert ask("job", row[0])[0]["status"] == "pending"
    assert [found for found in ask("transactions") if found["application_name"] == "the shell"] == []


@pytest.mark.django_db
def test_a_job_that_is_scheduled_for_later() -> None:
    (later,) = ask("job", JobFactory.create(scheduled=True).pk)
    (now,) = ask("job", JobFactory.create().pk)
    assert (later["status"], later["is_scheduled"], now["is_scheduled"]) == ("pending", True, False)


@in_shop
def test_a_job_whose_task_is_unknown() -> None:
    job = Job.objects.create(task_path="shop.tasks.gone")
    run(job)
    (found,) = ask("job", job.pk)
    assert (found["status"], found["is_scheduled"]) == ("pending", True)
    assert "'shop.tasks.gone'" in found["waiting_reason"]


@pytest.mark.django_db
def test_the_workers_that_serve_a_queue() -> None:
    WorkerFactory.create(host="all")
    WorkerFactory.create(host="mail", queues=["mail"], heartbeat_at=timezone.now() - timedelta(minutes=5))
    WorkerFactory.create(host="other", queues=["reports"])
    WorkerFactory.create(host="all but mail", exclude_queues=["mail"])
    found = ask("workers")
    assert [worker["host"] for worker in found] == ["all", "mail"]
    assert found[1]["silent_for"] > timedelta(minutes=4)


@pytest.mark.django_db
def test_the_slots_that_are_taken() -> None:
    busy, idle = WorkerFactory.create(host="a", slots=2), WorkerFactory.create(host="b")
    an_hour_ago = timezone.now() - timedelta(hours=1)
    JobFactory.create(running=True, worker=busy.pk, last_attempted_at=an_hour_ago)
    JobFactory.create(running=True, worker=busy.pk)
    first, second = ask("slots")
    assert (first["pid"], first["slots"], first["running"]) == (busy.pid, 2, 2)
    assert first["longest"] >= timedelta(hours=1)
    assert (second["pid"], second["running"]) == (idle.pid, 0)


@pytest.mark.django_db
def test_the_jobs_that_are_ahead() -> None:
    mine = JobFactory.create(queue_name="mail", priority=5)
    earlier = timezone.now() - timedelta(minutes=1)
    JobFactory.create_batch(2, queue_name="urgent", priority=50)
    JobFactory.create(queue_name="mail", priority=5, run_after=earlier)
    JobFactory.create(queue_name="mail", priority=4, run_after=earlier)
    JobFactory.create(queue_name="other", priority=5, run_after=earlier)
    JobFactory.create(queue_name="urgent", priority=50, scheduled=True)
    ahead = [(found["queue_name"], found["priority"], found["jobs"]) for found in ask("ahead", mine.pk)]
    assert ahead == [("urgent", 50, 2), ("mail", 5, 1)]


@pytest.mark.django_db
def test_a_job_that_is_over() -> None:
    (failed,) = ask("over", JobFactory.create(failed=True).pk)
    assert (failed["status"], failed["error_class"]) == ("failed", "shop.errors.GatewayDown")
    assert failed["error_message"] == "no answer from the gateway"
    (done,) = ask("over", JobFactory.create(done=True).pk)
    assert (done["status"], done["error_class"]) == ("done", None)


@in_shop
def test_a_job_that_has_expired() -> None:
    job = enqueue(example("later").send_code, 1)
    Job.objects.filter(pk=job.pk).update(expires_at=timezone.now())
    run(job)
    (expired,) = ask("over", job.pk)
    assert expired["status"] == "cancelled"
    assert expired["waiting_reason"].startswith("expired at ")


@in_shop
def test_the_backend_of_a_task(capsys: pytest.CaptureFixture[str]) -> None:
    with override_settings(TASKS=setting("tasks")["TASKS"]):
        runpy.run_path(str(EXAMPLES / "which_backend.py"))
    assert capsys.readouterr().out == "PgQueueBackend\n"
