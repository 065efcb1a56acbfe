"""Alerts and a real supervisor: what goes wrong reaches the receivers that the settings name."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from django.utils import timezone

from django_pgqueue import cancel
from tests.app.models import Entry
from tests.support.commands import SLOW, Command
from tests.support.factories import JobFactory
from tests.support.workers import until


def test_a_queue_that_nobody_serves_is_told_and_told_to_be_over(start: Callable[..., Command]) -> None:
    def told() -> set[str]:
        return {*Entry.objects.values_list("key", flat=True)}

    job = JobFactory.create(queue_name="slow", run_after=timezone.now() - timedelta(hours=1))
    command = start(
        "--queues", "mail", ALERTS="tests.app.receivers.write", ALERTS_INTERVAL=1, ALERTS_CLEAR_AFTER=0
    )
    until(lambda: told() >= {"age raised", "unserved raised"}, seconds=SLOW, what="both alerts")
    assert cancel(job)
    until(lambda: told() >= {"age over", "unserved over"}, seconds=SLOW, what="both are over")
    assert "slow: served by 0 of at least 1 worker" in Entry.objects.values_list("note", flat=True)
    assert "alerts" not in command.log
