"""The page "Coming from Celery": the task before and after the move does the same.

Celery is no dependency of the tests. What stands for it here is its decorator, which keeps its options and
notes calls.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from types import ModuleType
from typing import Any

import pytest

from django_pgqueue.models import Job

from .shop import example, in_shop, run, seconds_until


class SharedTask:
    """What ``celery.shared_task`` makes of a function, as far as the examples use it."""

    def __init__(self, function: Callable[..., Any], options: dict[str, Any]) -> None:
        self.run, self.options = function, options
        self.sent: list[tuple[list[Any], float]] = []

    def delay(self, *args: Any) -> None:
        self.sent.append((list(args), 0))

    def apply_async(self, args: list[Any], countdown: float) -> None:
        self.sent.append((args, countdown))


def shared_task(**options: Any) -> Callable[[Callable[..., Any]], SharedTask]:
    return lambda function: SharedTask(function, options)


@pytest.fixture
def celery(monkeypatch: pytest.MonkeyPatch, shop: None) -> Iterator[None]:
    module = ModuleType("celery")
    module.shared_task = shared_task  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "celery", module)
    yield
    for name in ("shop.celery_tasks", "shop.celery_bridge"):
        sys.modules.pop(name, None)


@in_shop
def test_both_versions_do_the_same(celery: None) -> None:
    before, after = import_module("shop.celery_tasks"), example("billing")
    orders, bank = example("models").Order.objects, example("idempotent").CHARGED
    bank.clear()
    old, new = (orders.create(email=f"{name}@example.com", total=5) for name in ("old", "new"))
    before.check_out(old)
    assert before.charge_order.sent == [([old.pk], 0)]  # after the commit
    before.charge_order.run(old.pk)
    after.check_out(new)
    assert run(Job.objects.get()).status == "done"
    assert bank == {f"order-{old.pk}": old.pk, f"order-{new.pk}": new.pk}
    assert orders.filter(paid=True).count() == 2


@in_shop
def test_both_versions_wait_for_a_day(celery: None) -> None:
    before, after = import_module("shop.celery_tasks"), example("billing")
    order = example("models").Order.objects.create(email="ann@example.com")
    before.check_out_tomorrow(order)
    after.check_out_tomorrow(order)
    ((_, countdown),) = before.charge_order.sent
    assert seconds_until(Job.objects.get().run_after) == pytest.approx(countdown, abs=60)


@in_shop
def test_both_versions_have_the_same_policy(celery: None) -> None:
    before, after = import_module("shop.celery_tasks").charge_order.options, example("billing").charge_order
    assert before["max_retries"] + 1 == after.max_attempts == len(after.backoff) + 1
    assert before["autoretry_for"] == (ConnectionError,)
    assert after.retry_on in (ConnectionError, (ConnectionError,))
    assert (before["queue"], before["soft_time_limit"]) == (after.queue_name, after.timeout)
    assert [before["retry_backoff"] * 2**retry for retry in range(4)] == list(after.backoff)


@in_shop
def test_calls_that_are_left_in_the_broker(celery: None) -> None:
    bridge, old = import_module("shop.celery_bridge"), import_module("shop.celery_tasks")
    assert bridge.pass_on.options["name"] == f"{old.charge_order.run.__module__}.charge_order"
    order = example("models").Order.objects.create(email="ann@example.com")
    bridge.pass_on.run(order.pk)
    assert run(Job.objects.get()).status == "done"
    order.refresh_from_db()
    assert order.paid
