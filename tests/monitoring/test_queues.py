"""The figures of each queue, for the list and the pages of queues."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from django_pgqueue import pause
from django_pgqueue.monitoring.queues import one_queue, queue_figures
from tests.support.factories import JobFactory, JobStatFactory, QueueFactory, WorkerFactory

pytestmark = pytest.mark.django_db


def ago(**time: float) -> Any:
    return timezone.now() - timedelta(**time)


def test_the_figures_of_each_queue() -> None:
    worker = WorkerFactory.create()
    JobFactory.create(queue_name="mail", run_after=ago(minutes=20))
    JobFactory.create(queue_name="mail", scheduled=True)
    JobFactory.create(queue_name="mail", running=True, worker=worker.pk)
    JobFactory.create(queue_name="mail", running=True, worker=worker.pk + 1)
    JobFactory.create(queue_name="mail", status="blocked", waiting_reason="waits for jobs 1, 2")
    JobStatFactory.create(queue_name="mail", done=5, failed=1, retried=2, minute=ago(minutes=2))
    JobStatFactory.create(queue_name="ran", done=7, minute=ago(hours=3))
    JobFactory.create(queue_name="failures", failed=True)
    JobFactory.create(queue_name="failures", failed=True, finished_at=ago(hours=3))
    JobFactory.create(queue_name="failures", failed=True, finished_at=ago(days=3))
    JobFactory.create(queue_name="failures", done=True, shelf=9)
    QueueFactory.create(name="unused")
    pause(queue="paused")
    found, is_slow = queue_figures("default")
    assert not is_slow
    by_name = {figures.name: figures for figures in found}
    assert list(by_name) == ["failures", "mail", "paused", "ran", "unused"]
    mail = by_name["mail"]
    depth = mail.depth
    assert (depth.ready, depth.scheduled, depth.running, depth.blocked, mail.lost) == (1, 1, 2, 1, 1)
    assert mail.oldest is not None
    assert timedelta(minutes=20) <= mail.oldest < timedelta(minutes=21)
    assert mail.hour is not None
    assert (mail.hour.done, mail.hour.failed, mail.hour.retried) == (5, 1, 2)
    assert (sum(mail.trend.done), sum(mail.trend.failed), len(mail.trend.done)) == (5, 3, 12)
    assert mail.needs_workers
    assert by_name["failures"].failed_day == 2
    assert by_name["ran"].hour is None
    assert by_name["unused"].oldest is None
    assert not by_name["unused"].needs_workers
    alone = one_queue("default", "mail")
    assert alone is not None
    assert (alone.depth.ready, alone.depth.running, alone.lost) == (1, 2, 1)
    nothing = one_queue("default", "never heard of")
    assert nothing is not None
    assert not nothing.needs_workers
