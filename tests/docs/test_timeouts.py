"""The examples about jobs that are asked to stop, and about timeouts."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from threading import Event
from time import monotonic
from typing import Any

import pytest
from django.db import connections
from django.utils import timezone

from django_pgqueue import enqueue
from django_pgqueue.models import Job

from .shop import DEADLINE, example, fresh, in_shop, run, seconds_until, statements, working


@in_shop
def test_a_sync_task_is_asked_to_stop() -> None:
    job = enqueue(example("control").watch, 60)
    with working():
        deadline = monotonic() + DEADLINE
        while fresh(job).status == "pending":
            assert monotonic() < deadline
        assert example("control").withdraw_one(job)
    ended = fresh(job)
    assert ended.cancel_requested_at is not None
    assert (ended.status, ended.result) == ("done", "stopped")


@in_shop
def test_an_async_task_is_asked_to_stop(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    began, real_sleep = Event(), asyncio.sleep

    async def sleep(seconds: float) -> None:
        began.set()
        await real_sleep(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    job = enqueue(example("fetching").listen, 60)
    with working():
        assert began.wait(DEADLINE)
        assert example("control").withdraw_one(job)
    assert fresh(job).status == "cancelled"
    assert "asked to stop" in capsys.readouterr().out


@in_shop
@pytest.mark.parametrize("name", ["export_catalogue", "follow_parcel"])
def test_a_task_cleans_up_at_its_timeout(name: str, tmp_path: Path) -> None:
    job = run(enqueue(getattr(example("timeouts"), name), str(tmp_path), *TOO_LONG[name]))
    assert (job.status, job.attempts) == ("failed", 1)
    assert job.errors[0]["class"] == "django_pgqueue.exceptions.TaskTimeout"
    assert job.last_attempted_at is not None
    assert job.finished_at is not None
    assert job.finished_at - job.last_attempted_at >= timedelta(seconds=0.9)
    assert list(tmp_path.iterdir()) == []


TOO_LONG: dict[str, list[Any]] = {"export_catalogue": [100_000], "follow_parcel": ["parcel"]}


@in_shop
def test_a_task_that_is_quick_enough_has_no_timeout(tmp_path: Path) -> None:
    job = run(enqueue(example("timeouts").export_catalogue, str(tmp_path), 3))
    assert (job.status, job.result) == ("done", 3)
    assert [path.name for path in tmp_path.iterdir()] == ["catalogue"]
    assert run(enqueue(example("timeouts").render_invoice, 5)).result == "invoice 5"


@in_shop
def test_a_task_that_extends_its_timeout() -> None:
    """Eight pages take 2.4 s, the timeout is 2 s: without the extension it would be interrupted."""
    job = run(enqueue(example("timeouts").import_pages, 8))
    assert (job.status, job.result, job.attempts) == ("done", 8, 1)


@in_shop
def test_an_operator_extends_a_timeout() -> None:
    job = enqueue(example("timeouts").render_invoice, 1)
    assert not example("timeouts").give_an_hour(job)  # it does not run yet
    Job.objects.filter(pk=job.pk).update(status="running", lease=77, worker=5, deadline=timezone.now())
    assert example("timeouts").give_an_hour(job)
    deadline = fresh(job).deadline
    assert deadline is not None
    assert seconds_until(deadline) == pytest.approx(3600, abs=60)
    with connections["default"].cursor() as cursor:
        cursor.execute(statements("extend").replace("[1]", f"[{job.pk}]").replace("1 hour", "2 hours"))
        assert cursor.fetchone() == ([job.pk],)
    later = fresh(job).deadline
    assert later is not None
    assert seconds_until(later) == pytest.approx(7200, abs=60)


@in_shop
def test_a_wait_with_a_limit_of_its_own(tmp_path: Path) -> None:
    page = tmp_path / "page"
    page.write_bytes(b"all there")
    assert example("timeouts").ask_warehouse.call(page.as_uri()) == b"all there"
