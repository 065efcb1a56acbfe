"""The examples of steps."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connections

from django_pgqueue import enqueue
from django_pgqueue.exceptions import JobFinished
from django_pgqueue.models.changes import run_now

from .shop import example, fresh, in_shop, run, statements


@pytest.fixture
def steps(shop: None) -> Any:
    return example("steps")


@in_shop
def test_an_order_is_fulfilled_once(steps: Any) -> None:
    models = example("models")
    order = models.Order.objects.create(email="ann@example.com", total=42)
    account = models.Account.objects.create(name="ann", balance=100)
    job = enqueue(steps.fulfil, order.pk, account.pk)
    assert run(job).waiting_reason == "sleeps: settle"
    run_now(job)
    done = run(job)
    assert (done.status, done.result) == ("done", f"parcel {len(steps.SHIPPED)}")
    assert steps.SHIPPED.count(order.pk) == 1
    account.refresh_from_db()
    assert account.balance == 58
    assert [entry["name"] for entry in done.steps or []] == ["render", "charge", "ship", "settle"]


@in_shop
def test_a_refund_waits_for_a_decision(steps: Any) -> None:
    job = enqueue(steps.refund, 1)
    assert run(job).waiting_reason == "waits for the event decided"
    assert steps.decide(job.pk, "ann", "yes") is True
    assert steps.decide(job.pk, "bob", "no") is False
    assert run(job).result == "ann says yes"
    with pytest.raises(JobFinished):
        steps.decide(job.pk, "bob", "no")


@in_shop
def test_an_event_from_sql(steps: Any) -> None:
    job = enqueue(steps.refund, 1)
    with connections["default"].cursor() as cursor:
        cursor.execute(statements("send_event").replace("57", str(job.pk)))
        assert cursor.fetchone() == (True,)
    assert run(fresh(job)).result == "ann says yes"


@in_shop
def test_decorated_functions(steps: Any) -> None:
    job = enqueue(steps.import_pages, 2)
    done = run(job)
    assert done.result == 6
    assert [entry["name"] for entry in done.steps or []] == ["fetch-0", "store-0", "fetch-1", "store-1"]
    assert example("models").Order.objects.count() == 6
