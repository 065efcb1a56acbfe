"""What stands in for features that do not exist yet: cron, uniqueness, rate limits. And waiting."""

from __future__ import annotations

from datetime import date
from io import StringIO
from threading import Barrier, Thread

import pytest
from django.core.management import call_command
from django.db import connections

from django_pgqueue import enqueue
from django_pgqueue.models import Job
from tests.support.coroutines import run as run_async
from tests.support.workers import working

from .shop import example, in_shop, run, seconds_until

TODAY = date(2026, 11, 22)


@in_shop
def test_a_periodic_job_is_enqueued_once() -> None:
    first, second = StringIO(), StringIO()
    call_command("enqueue_daily_report", stdout=first)
    call_command("enqueue_daily_report", stdout=second)
    assert (first.getvalue(), second.getvalue()) == ("enqueued\n", "already enqueued today\n")
    assert run(Job.objects.get()).status == "done"
    assert example("models").DailyReport.objects.get().text == "0 orders"


@in_shop
def test_two_machines_enqueue_a_periodic_job_at_the_same_moment() -> None:
    """The unique constraint makes the second transaction wait for the first one, and find its row."""
    together, answers = Barrier(2), list[bool]()

    def cron() -> None:
        try:
            together.wait()
            answers.append(example("periodic").enqueue_daily_report(TODAY))
        finally:
            connections.close_all()

    machines = [Thread(target=cron) for _ in range(2)]
    for machine in machines:
        machine.start()
    for machine in machines:
        machine.join()
    assert sorted(answers) == [False, True]
    assert Job.objects.count() == 1


@in_shop
def test_a_rate_limit_of_another_system(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = example("limits")
    monkeypatch.setattr(limits, "SENT", [])
    assert run(enqueue(limits.sync_order, 1)).status == "done"
    second = run(enqueue(limits.sync_order, 2))
    assert (second.status, second.attempts, limits.SENT) == ("pending", 0, [1])
    assert seconds_until(second.run_after) == pytest.approx(60, abs=10)


@in_shop
def test_wait_for_a_result() -> None:
    order = example("models").Order.objects.create(email="ann@example.com")
    assert example("waiting").address_of(order.pk, 0.0) is None
    with working():
        assert example("waiting").address_of(order.pk, 20.0) == "ann@example.com"
        assert run_async(example("waiting").addresses_of([order.pk])) == ["ann@example.com"]
