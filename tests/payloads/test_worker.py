"""Payloads in a worker: what the task gets, and in how many queries."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection, transaction

from django_pgqueue import RetryLater, cancel, enqueue, enqueue_many, retry
from django_pgqueue.jobs.payloads import load as original
from django_pgqueue.models import Job
from django_pgqueue.models.changes import run_now
from django_pgqueue.worker.executor import calls
from django_pgqueue.worker.producer.demand import Slots
from tests.app.models import Entry
from tests.receipts import tasks
from tests.receipts.models import Charge, Order, Receipt, Reminder
from tests.receipts.tasks import charge, remind, send
from tests.support.workers import run_due

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def order() -> Iterator[Order]:
    tasks.DONE.clear()
    yield Order.objects.create(total=5)
    tasks.HOOKS.clear()


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many payloads each query was to read.

    On a slow machine, too, 50 jobs are claimed, and their rows are fresh until the last of them starts.
    """
    sizes: list[int] = []
    monkeypatch.setattr(Slots, "target", 50)
    monkeypatch.setattr(calls, "FRESH", 60.0)

    def load(model: Any, alias: str, ids: list[int]) -> dict[int, Any]:
        sizes.append(len(ids))
        return original(model, alias, ids)

    monkeypatch.setattr(calls, "load", load)
    return sizes


def outcomes() -> list[tuple[str, Any]]:
    return [*Job.objects.order_by("pk").values_list("status", "result")]


def test_a_batch_is_read_in_one_query(order: Order, loads: list[int]) -> None:
    Receipt.objects.bulk_create([Receipt(order=order, email=f"{n}@b.c") for n in range(50)])
    run_due(threads=1)
    assert outcomes() == [("done", f"{n}@b.c") for n in range(50)]
    assert sum(loads) <= 60, loads
    assert len(loads) <= 10, loads


def test_async_jobs_share_a_query(order: Order, loads: list[int]) -> None:
    rows = [Reminder(order=order, email=f"{n}@b.c") for n in range(40)]
    ids = enqueue_many(remind.bind(row) for row in rows).ids
    run_due(threads=2, async_slots=40)
    assert outcomes() == [("done", f"{key} {key}") for key in ids]
    assert len(loads) < 20


def test_an_atomic_task_reads_its_row_in_its_transaction(order: Order, loads: list[int]) -> None:
    rows = Charge.objects.bulk_create([Charge(order=order, email=f"{n}@b.c") for n in range(3)])
    run_due(threads=1)
    assert outcomes() == [("done", True)] * 3
    assert loads == [1, 1, 1]
    assert Charge.objects.filter(paid=True).count() == Entry.objects.count() == len(rows)


@pytest.mark.promise("payload-read")
def test_each_attempt_reads_the_row_again(order: Order) -> None:
    row = Receipt.objects.create(order=order, email="first@b.c")

    def correct(receipt: Receipt) -> None:
        if receipt.email == "first@b.c":
            Receipt.objects.filter(pk=receipt.pk).update(email="second@b.c")
            raise RetryLater(0)

    tasks.HOOKS["correct"] = correct
    run_due()
    run_due()
    assert outcomes() == [("done", "second@b.c")]
    Receipt.objects.filter(pk=row.pk).update(email="third@b.c")
    assert retry(row.job, done=True)
    run_due()
    assert outcomes() == [("done", "third@b.c")]


@pytest.mark.parametrize("model", [Receipt, Reminder, Charge])
def test_a_job_without_its_row_is_cancelled(order: Order, model: Any) -> None:
    present, emptied = (
        model.objects.create(order=order, email="a@b.c"),
        model.objects.create(order=order, email="b@b.c"),
    )
    with connection.cursor() as cursor, transaction.atomic():
        cursor.execute("SET LOCAL session_replication_role = replica")  # as a TRUNCATE: without the trigger
        model.objects.filter(pk=emptied.pk).delete()
    run_due()
    assert Job.objects.get(pk=present.pk).status == "done"
    job = Job.objects.get(pk=emptied.pk)
    assert (job.status, job.errors) == ("cancelled", [])
    assert job.waiting_reason == f"its row in {model._meta.db_table} does not exist"


def test_a_job_with_arguments_fails(order: Order) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pgqueue_enqueue('tests.receipts.tasks.send', args => '[1]')")
        job = Job.objects.get()
        cursor.execute(
            "INSERT INTO receipts_receipt (job_id, order_id, email) VALUES (%s, %s, 'x')", [job.pk, order.pk]
        )
    run_due()
    job.refresh_from_db()
    assert job.status == "failed"
    assert job.errors[0]["message"].endswith("too many positional arguments")


def test_a_task_may_delete_its_own_row(order: Order) -> None:
    Receipt.objects.create(order=order, email="a@b.c")
    tasks.HOOKS["delete"] = lambda receipt: Receipt.objects.filter(pk=receipt.pk).delete() and None
    run_due()
    assert outcomes() == [("done", "a@b.c")]
    assert not Receipt.objects.exists()


def test_a_job_that_crashed_before_gets_its_row_in_its_own_process(order: Order) -> None:
    row = Receipt.objects.create(order=order, email="a@b.c")
    Job.objects.filter(pk=row.pk).update(crash_count=1)
    call_command("runqueueworker", burst=True, processes=1, verbosity=0)
    assert outcomes() == [("done", "a@b.c")]


def test_a_row_of_a_deleted_order_stops_its_job(order: Order) -> None:
    job = enqueue(send, Receipt(order=order, email="a@b.c"))
    order.delete()
    assert not run_now(job)
    run_due()
    assert [status for status, _ in outcomes()] == ["cancelled"]
    assert not cancel(job)
    assert charge.payload is Charge
