"""The clock of this process is two hours ahead or behind, and everything follows the clock of the server."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from django_pgqueue import Snooze, enqueue, pause
from django_pgqueue.admin.bulk import task
from django_pgqueue.models import Pause, Schedule
from django_pgqueue.postgres import clock as clock_module
from django_pgqueue.worker.inline import InlineWorker
from tests.admin.helpers import url
from tests.app import inline_tasks, tasks
from tests.support.workers import fresh

pytestmark = pytest.mark.django_db

SOON, OFF = timedelta(minutes=30), timedelta(hours=2)
BOTH = pytest.mark.parametrize("wrong", [OFF, -OFF], ids=["ahead", "behind"])


@pytest.fixture(autouse=True)
def clock(wrong: timedelta, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the clock of this process be wrong, wherever the package could read it."""
    right = timezone.now

    class Wrong(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return datetime.now(tz) + wrong

    monkeypatch.setattr(timezone, "now", lambda: right() + wrong)
    monkeypatch.setattr(clock_module, "datetime", Wrong)
    monkeypatch.setattr(clock_module, "_heard", {})


@pytest.fixture
def now() -> datetime:
    """The right time."""
    return datetime.now(UTC)


@BOTH
def test_a_job_snoozes_until_a_time(now: datetime) -> None:
    def snooze() -> None:
        raise Snooze(until=now + SOON)

    inline_tasks.BODIES["x"] = snooze
    job, worker = enqueue(inline_tasks.run_body, "x"), InlineWorker("default")
    worker.run_next()
    worker.close()
    assert abs(fresh(job).run_after - now - SOON) < timedelta(seconds=10)


@BOTH
def test_a_pause_ends_in_the_future(admin_client: Client, now: datetime) -> None:
    with pytest.raises(ValueError, match="must be in the future"):
        pause(queue="mail", until=now - SOON)
    assert pause(queue="mail", until=now + SOON).until == now + SOON

    def form(moment: datetime) -> bool:
        local = timezone.localtime(moment)
        until = {"until_0": f"{local:%Y-%m-%d}", "until_1": f"{local:%H:%M:%S}"}
        address = url("add", model="pause")
        return admin_client.post(address, {"kind": "queue", "name": "form", **until}).status_code == 302

    assert not form(now - SOON)
    assert form(now + SOON)
    assert Pause.objects.filter(name="form").count() == 1


@pytest.mark.parametrize("wrong", [timedelta(hours=25)])
def test_an_order_of_the_admin_is_not_old_yet(now: datetime) -> None:
    given = task.Order(
        site="", user="1", action="retry", effects=[], counted=1, is_exact=True, query="", meaning="",
        ids=[1], as_of=now.isoformat(), values={}, details="",
    )  # fmt: skip
    assert task.Order.opened(*given.sealed(), "default") == given
    old = replace(given, as_of=(now - task.LONGEST).isoformat())
    with pytest.raises(task.Refused, match="more than a day old"):
        task.Order.opened(*old.sealed(), "default")


@BOTH
def test_a_changed_schedule_was_changed_now(now: datetime) -> None:
    schedule = Schedule.objects.create(name="often", task_path=tasks.noop.module_path, every=SOON)
    schedule.save()
    assert abs(schedule.updated_at - now) < timedelta(seconds=10)
