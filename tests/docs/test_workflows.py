"""The examples of workflows, and those of Celery's canvas beside them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from importlib import import_module, reload
from importlib.util import find_spec
from typing import Any

import pytest
from django.db import connections

from django_pgqueue import Batch
from django_pgqueue.models import Job

from .shop import example, fresh, in_shop, statements, work


@pytest.fixture
def flows(shop: None) -> Iterator[Any]:
    found = example("workflows")
    yield found
    found.PUBLISHED.clear()
    found.MAILS.clear()


@pytest.fixture
def canvas(shop: None) -> Iterator[Any]:
    found = example("canvas")
    yield found
    found.REPORTS.clear()


@pytest.fixture
def celery(shop: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The examples of Celery, which run the tasks at once."""
    if find_spec("celery") is None and not os.environ.get("CI"):
        pytest.skip("celery is not installed")
    from celery import Celery, _state
    from celery.app import builtins

    monkeypatch.setattr(_state, "_on_app_finalizers", set())
    reload(builtins)  # which adds its own tasks again, and not the shared tasks of other tests
    app = Celery("shop", broker="memory://", backend="cache+memory://", set_as_current=True)
    app.conf.task_always_eager = True
    yield import_module("shop.celery_canvas")
    app.close()
    sys.modules.pop("shop.celery_canvas", None)


def result_of(job: Job) -> Any:
    work()
    return fresh(job).result


def results_of(batch: Batch) -> list[Any]:
    work()
    return [job.result for job in batch.jobs.order_by("pk")]


@in_shop
def test_a_job_after_others(flows: Any) -> None:
    job = flows.import_prices()
    assert job.waiting_reason.startswith("waits for job")
    with connections["default"].cursor() as cursor:
        cursor.execute(statements("parents").replace("57", str(job.pk)))
        path = "shop.workflows.read_prices"
        assert cursor.fetchall() == [(pk, path, "pending", "hold") for pk in job.parent_ids]
    assert result_of(job) == 4
    assert list(flows.PUBLISHED[0]) == ["north-pear", "north-plum", "south-pear", "south-plum"]


@in_shop
def test_a_job_whatever_has_become_of_the_one_before(flows: Any) -> None:
    for supplier, expected in (("north", "0 of 1"), ("nobody", "1 of 1")):
        _, publish, tell = flows.import_and_tell(supplier, "ann@example.com")
        work()
        assert fresh(publish).status == ("done" if supplier == "north" else "cancelled")
        assert fresh(tell).status == "done"
        assert flows.MAILS[-1] == f"ann@example.com: {expected} have failed"


@in_shop
def test_a_chain(flows: Any) -> None:
    assert result_of(flows.fulfil(5)[-1]) == "packed box for 5, with post"


@in_shop
def test_a_batch_and_what_comes_after_it(flows: Any) -> None:
    batch = flows.send_to_all([12, 13, 14])
    work()
    assert sorted(flows.MAILS) == ["newsletter for 12", "newsletter for 14", "newsletter: failed"]
    assert batch.counts() == (3, 2, 1, 0)
    assert flows.send_to_all([]).outcome == "done"
    work()
    assert sorted(flows.MAILS)[-2:] == ["newsletter: done", "newsletter: failed"]
    assert flows.MAILS.count("all have been sent") == 1


@in_shop
def test_a_batch_in_sql(flows: Any) -> None:
    with connections["default"].cursor() as cursor:
        cursor.execute(statements("batch"))
    work()
    assert sorted(flows.MAILS) == [*(f"newsletter for {n}" for n in (1, 2, 3)), "newsletter: done"]


@in_shop
def test_a_batch_that_grows(flows: Any) -> None:
    batch = flows.index_catalog()
    work()
    assert batch.counts() == (7, 7, 0, 0)
    late = flows.import_lines(["north", "south"])
    assert flows.add_late(late, "west")
    work()
    assert late.counts() == (3, 3, 0, 0)
    assert not flows.add_late(late, "east")


@in_shop
def test_the_recipes_do_what_celery_does(canvas: Any, celery: Any) -> None:
    assert result_of(canvas.in_sequence()) == celery.in_sequence().get() == 16
    assert results_of(canvas.in_parallel()) == celery.in_parallel().get() == [2 * n for n in range(10)]
    assert result_of(canvas.sum_of_all()) == celery.sum_of_all().get() == 90
    assert results_of(canvas.in_chunks()) == celery.in_chunks().get()
    assert result_of(canvas.in_one_task()) == celery.in_one_task().get() == [4, 8]
    assert celery.count_down.apply(args=[3]).get() == "zero"
    countdown = canvas.count_down_from(3)
    work()
    assert countdown.counts() == (4, 4, 0, 0)


@in_shop
def test_callbacks(canvas: Any, celery: Any) -> None:
    assert celery.with_callbacks().get() == 4
    canvas.with_callbacks()
    work()
    assert [other.result for other in Job.objects.order_by("pk")] == [4, 20, None]
    assert canvas.REPORTS == []
    failing = canvas.enqueue(canvas.add, 2, "2")
    canvas.enqueue(canvas.report.using(after=failing, if_failed="run"))
    work()
    assert canvas.REPORTS == [
        "shop.canvas.add has failed: unsupported operand type(s) for +: 'int' and 'str'"
    ]
