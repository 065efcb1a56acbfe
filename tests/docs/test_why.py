"""The statements of the page "Why isn't my job running?": each one finds the reason that it is there for."""

from __future__ import annotations

import json
import re
import runpy
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connections
from django.test import override_settings
from django.utils import timezone

from django_pgqueue import enqueue, pause
from django_pgqueue.explanation.words import CODES

from ..support.factories import JobFactory, WorkerFactory
from ..support.sessions import open_raw
from .shop import DOCS, EXAMPLES, example, in_shop, setting, statements


def ask(name: str, job: int = 1) -> list[dict[str, Any]]:
    """What a statement of the page says about a job."""
    query = re.sub(r"(?<=why\()1", str(job), statements(f"why/{name}"))
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
        assert ask("reason", row[0])[0]["code"] == "unknown"
        (open_one,) = [found for found in ask("transactions") if found["application_name"] == "the shell"]
        assert open_one["state"] == "idle in transaction"
        assert open_one["open_for"] > timedelta(0)
        assert "pgqueue_enqueue" in open_one["last_query"]
        other.commit()
        assert ask("reason", row[0])[0]["code"] == "no_worker"
    assert [found for found in ask("transactions") if found["application_name"] == "the shell"] == []


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


@in_shop
def test_the_reason_in_sql_and_for_all_late_jobs() -> None:
    JobFactory.create(queue_name="mail")
    late = JobFactory.create(queue_name="mail", run_after=timezone.now() - timedelta(hours=2))
    (found,) = ask("reason", late.pk)
    assert (found["code"], json.loads(found["facts"])["queue_name"]) == ("no_worker", "mail")
    (reason,) = example("reasons").late_jobs()
    assert (reason.job_id, reason.code) == (late.pk, "no_worker")
    assert example("reasons").report().startswith(f"job {late.pk}: No worker serves the queue 'mail'")


def test_the_page_lists_the_reasons_in_their_order() -> None:
    page = (DOCS / "howto" / "why.md").read_text()
    rows = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \|", page, re.MULTILINE)
    codes = [code for row in rows for code in re.findall(r"`(\w+)`", row)]
    assert sorted([*codes, "blocked"]) == sorted(CODES)


@in_shop
def test_a_pause_is_told_as_on_the_page() -> None:
    page = (DOCS / "howto" / "why.md").read_text()
    job = enqueue(example("tasks").send_receipt, 5)
    pause(queue="mail", author="anna", reason="the provider is down")
    out = StringIO()
    call_command("pgqueue", "why", str(job.pk), stdout=out)
    said = re.sub(r"\d{4}-.{14}", "2026-11-23 09:12:40", out.getvalue())
    said = said.replace(f"Job {job.pk} ", "Job 4712 ")
    assert said in page


@in_shop
def test_the_backend_of_a_task(capsys: pytest.CaptureFixture[str]) -> None:
    with override_settings(TASKS=setting("tasks")["TASKS"]):
        runpy.run_path(str(EXAMPLES / "which_backend.py"))
    assert capsys.readouterr().out == "PgQueueBackend\n"
