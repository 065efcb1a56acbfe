"""The examples of unique jobs."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connections

from django_pgqueue import enqueue
from django_pgqueue.models import Job

from .shop import DOCS, example, in_shop, seconds_until, statements, work


@pytest.fixture
def order(shop: None) -> Any:
    return example("models").Order.objects.create(email="ann@example.com", total=42)


@in_shop
def test_one_job_covers_all_changes_until_it_starts(order: Any) -> None:
    unique = example("unique")
    first = unique.order_changed(order)
    assert first.endswith(": created")
    assert unique.order_changed(order) == first.replace("created", "existing")
    work()
    assert Job.objects.get().result == 42
    assert unique.order_changed(order).endswith(": created")


@in_shop
def test_the_keys_look_as_the_page_says(order: Any) -> None:
    unique = example("unique")
    page = (DOCS / "howto" / "unique.md").read_text()
    job = enqueue(unique.close_account, "ann@example.com")
    assert job.unique_key == "shop.unique.close_account/ann@example.com"
    assert "f/ann@example.com`" in page
    unique.order_changed(order)
    assert Job.objects.latest("pk").unique_key == f"shop.unique.index_order/{order.pk}"
    assert "f/1`" in page


@in_shop
def test_the_other_scopes_and_conflicts(order: Any) -> None:
    unique = example("unique")
    first = enqueue(unique.remind_customer, order.pk)
    work()
    assert enqueue(unique.remind_customer, order.pk).pk == first.pk

    soon = unique.debounced(order, "one")
    last = unique.debounced(order, "two")
    assert (last.pk, last.enqueue_outcome, last.args) == (soon.pk, "replaced", [order.pk, "two"])
    assert seconds_until(last.run_after) == pytest.approx(300, abs=30)
    assert last.run_after > soon.run_after

    assert unique.ask_to_close("ann@example.com") == "it will be closed"
    assert unique.ask_to_close("Ann@Example.com").endswith("is about to close it already")

    rebuild = unique.rebuild("north")
    assert (rebuild.unique_key, rebuild.unique_scope) == ("rebuild", "live")
    assert unique.rebuild("south").pk == rebuild.pk


@in_shop
def test_many(order: Any) -> None:
    unique = example("unique")
    other = example("models").Order.objects.create(email="bob@example.com")
    unique.order_changed(order)
    assert unique.prices_changed([order, other, other]) == 1


@in_shop
def test_a_job_that_waits_already_joins_the_batch(order: Any) -> None:
    unique = example("unique")
    unique.order_changed(order)
    batch = unique.index_all([order])
    assert (batch.counts().added, batch.is_finished) == (1, False)
    work()
    assert batch.counts().done == 1


@in_shop
def test_a_unique_job_from_sql() -> None:
    with connections["default"].cursor() as cursor:
        cursor.execute(statements("unique"))
        first = cursor.fetchone()
        cursor.execute(statements("unique"))
        assert cursor.fetchone() == first
    job = Job.objects.get()
    assert (job.unique_key, job.unique_scope) == ("receipt-1", "live")
    assert job.run_after - job.enqueued_at == timedelta(0)
