"""The page "Coming from Celery": the task before and after the move does the same.

Celery is the real one, with a broker in memory. Outside of CI, the tests are skipped if it is not installed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from datetime import datetime
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import pytest
from django.utils import timezone

from django_pgqueue.models import Job

from .shop import example, in_shop, run, seconds_until

_MODULES = ("shop.celery_tasks", "shop.celery_bridge")


class Broker:
    """A Celery app whose messages stay in this process."""

    def __init__(self) -> None:
        from celery import Celery

        self.app = Celery("shop", broker="memory://", set_as_current=True)
        self.app.conf.task_routes = {"shop.celery_tasks.*": {"queue": "billing"}}

    def messages(self) -> list[tuple[str, list[Any], str | None]]:
        """Take what is in the queue: the name of each task, its arguments, and when it is to run."""
        with self.app.connection_for_read() as connection, connection.SimpleQueue("billing") as queue:
            found = [queue.get(block=False) for _ in range(queue.qsize())]
            for message in found:
                message.ack()
        return [(each.headers["task"], each.payload[0], each.headers["eta"]) for each in found]


@pytest.fixture
def celery(shop: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Broker]:
    if find_spec("celery") is None and not os.environ.get("CI"):
        pytest.skip("celery is not installed")
    # Every app would get the shared tasks of all tests, also those that have the same name on purpose.
    monkeypatch.setattr("celery._state._on_app_finalizers", set())
    broker = Broker()
    yield broker
    broker.messages()
    broker.app.close()
    for name in _MODULES:
        sys.modules.pop(name, None)


@in_shop
def test_both_versions_do_the_same(celery: Broker) -> None:
    before, after = import_module("shop.celery_tasks"), example("billing")
    orders, bank = example("models").Order.objects, example("idempotent").CHARGED
    bank.clear()
    old, new = (orders.create(email=f"{name}@example.com", total=5) for name in ("old", "new"))
    before.check_out(old)
    assert celery.messages() == [("shop.celery_tasks.charge_order", [old.pk], None)]  # after the commit
    before.charge_order.apply(args=[old.pk]).get()
    after.check_out(new)
    assert run(Job.objects.get()).status == "done"
    assert bank == {f"order-{old.pk}": old.pk, f"order-{new.pk}": new.pk}
    assert orders.filter(paid=True).count() == 2


@in_shop
def test_both_versions_wait_for_a_day(celery: Broker) -> None:
    before, after = import_module("shop.celery_tasks"), example("billing")
    order = example("models").Order.objects.create(email="ann@example.com")
    before.check_out_tomorrow(order)
    after.check_out_tomorrow(order)
    ((_, arguments, eta),) = celery.messages()
    assert arguments == [order.pk]
    assert eta is not None
    countdown = (datetime.fromisoformat(eta) - timezone.now()).total_seconds()
    assert seconds_until(Job.objects.get().run_after) == pytest.approx(countdown, abs=60)


@in_shop
def test_both_versions_have_the_same_policy(celery: Broker) -> None:
    before, after = import_module("shop.celery_tasks").charge_order, example("billing").charge_order
    assert before.max_retries + 1 == after.max_attempts == len(after.backoff) + 1
    assert before.autoretry_for == (ConnectionError,)
    assert after.retry_on in (ConnectionError, (ConnectionError,))
    assert before.soft_time_limit == after.timeout
    assert celery.app.amqp.router.route({}, before.name)["queue"].name == after.queue_name
    assert [before.retry_backoff * 2**retry for retry in range(4)] == list(after.backoff)


@in_shop
def test_calls_that_are_left_in_the_broker(celery: Broker) -> None:
    bridge = import_module("shop.celery_bridge")
    assert bridge.pass_on.name == "shop.celery_tasks.charge_order"
    order = example("models").Order.objects.create(email="ann@example.com")
    bridge.pass_on.apply(args=[order.pk]).get()
    assert run(Job.objects.get()).status == "done"
    order.refresh_from_db()
    assert order.paid
