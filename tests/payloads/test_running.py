"""Payloads that run: what the task gets in a worker, in how many queries, and in the test kit."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import transaction

from django_pgqueue import RetryLater, enqueue, enqueue_many, retry
from django_pgqueue.jobs.payloads import load as original
from django_pgqueue.models import Job
from django_pgqueue.models.changes import run_now
from django_pgqueue.postgres import aliases
from django_pgqueue.testing import assert_enqueued, call_task, dummy_jobs, enqueued, immediate_jobs, run_jobs
from django_pgqueue.testing.factories import JobFactory, PayloadFactory
from django_pgqueue.worker.executor import calls
from django_pgqueue.worker.options import Assignment, WorkerOptions
from django_pgqueue.worker.process import build_producer
from django_pgqueue.worker.producer.demand import Slots
from tests.app.models import Entry
from tests.receipts import tasks
from tests.receipts.models import Charge, Order, Receipt, Reminder
from tests.receipts.tasks import charge, remind, send
from tests.support.jobs import sql
from tests.support.workers import run_due

in_worker = pytest.mark.django_db(transaction=True)


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


def insert(order: Order, model: Any = Receipt, count: int = 1) -> list[Any]:
    rows = [model(order=order, email=f"{number}@b.c") for number in range(count)]
    return list(model.objects.bulk_create(rows))


def outcomes() -> list[tuple[str, Any]]:
    return [*Job.objects.order_by("pk").values_list("status", "result")]


@in_worker
def test_jobs_that_run_together_are_read_together(order: Order, loads: list[int]) -> None:
    insert(order, count=50)
    run_due(threads=1)
    assert outcomes() == [("done", f"{n}@b.c") for n in range(50)]
    assert (sum(loads) <= 60, len(loads) <= 10) == (True, True), loads
    loads.clear()
    ids = [row.pk for row in insert(order, Reminder, 40)]
    run_due(threads=2, async_slots=40)
    assert outcomes()[50:] == [("done", f"{key} {key}") for key in ids]
    assert len(loads) < 20


@in_worker
def test_an_atomic_task_reads_its_row_in_its_transaction(order: Order, loads: list[int]) -> None:
    insert(order, Charge, 3)
    run_due(threads=1)
    assert outcomes() == [("done", True)] * 3
    assert loads == [1, 1, 1]
    assert Charge.objects.filter(paid=True).count() == Entry.objects.count() == 3


@in_worker
@pytest.mark.promise("payload-read")
def test_each_attempt_reads_the_row_again(order: Order) -> None:
    (row,) = insert(order)

    def correct(receipt: Receipt) -> None:
        if receipt.email == "0@b.c":
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


@in_worker
@pytest.mark.parametrize("model", [Receipt, Reminder, Charge])
def test_a_job_without_its_row_is_cancelled(order: Order, model: Any) -> None:
    present, emptied = insert(order, model, 2)
    with transaction.atomic():
        sql("SET LOCAL session_replication_role = replica")  # as a TRUNCATE: without the trigger
        model.objects.filter(pk=emptied.pk).delete()
    run_due()
    assert Job.objects.get(pk=present.pk).status == "done"
    job = Job.objects.get(pk=emptied.pk)
    assert (job.status, job.errors) == ("cancelled", [])
    assert job.waiting_reason == f"its row in {model._meta.db_table} does not exist"


@in_worker
def test_a_job_with_arguments_fails(order: Order) -> None:
    key = sql("SELECT pgqueue_enqueue('tests.receipts.tasks.send', args => '[1]')")
    sql("INSERT INTO receipts_receipt (job_id, order_id, email) VALUES (%s, %s, 'x')", key, order.pk)
    run_due()
    job = Job.objects.get()
    assert job.status == "failed"
    assert job.errors[0]["message"].endswith("too many positional arguments")


@in_worker
def test_a_task_may_delete_its_own_row_and_one_that_was_deleted_does_not_run(order: Order) -> None:
    insert(order)
    tasks.HOOKS["delete"] = lambda receipt: Receipt.objects.filter(pk=receipt.pk).delete() and None
    run_due()
    assert outcomes() == [("done", "0@b.c")]
    job = enqueue(send, Receipt(order=order, email="a@b.c"))
    order.delete()
    assert not run_now(job)
    run_due()
    assert [status for status, _ in outcomes()] == ["done", "cancelled"]


@in_worker
def test_a_job_that_crashed_before_gets_its_row_in_its_own_process(order: Order) -> None:
    (row,) = insert(order)
    Job.objects.filter(pk=row.pk).update(crash_count=1)
    databases = aliases.changed()
    producer = build_producer(Assignment(WorkerOptions(burst=True), 1, 1, databases=databases))
    producer.run()
    producer._waker.close()
    assert outcomes() == [("done", "0@b.c")]
    assert tasks.DONE == [], "not in this process"


# -- the test kit


class ReceiptFactory(PayloadFactory):
    """As a project writes it."""

    class Meta:
        model = Receipt

    email = "made@b.c"


@pytest.mark.django_db
def test_run_jobs_runs_rows_in_the_transaction_of_the_test(order: Order) -> None:
    for model in (Receipt, Reminder, Charge):
        insert(order, model)
    ran = {each.task_path.rpartition(".")[2]: each.result for each in run_jobs()}
    assert (ran["send"], ran["charge"]) == ("0@b.c", True)
    assert tasks.DONE == ["0@b.c", "0@b.c"]
    insert(order)
    order.delete()
    assert run_jobs() == []


@pytest.mark.django_db
def test_immediate_mode_runs_enqueued_rows_and_leaves_inserted_ones(order: Order) -> None:
    with immediate_jobs(at_once=True):
        job = enqueue(send, Receipt(order=order, email="a@b.c"))
        enqueue_many([send.bind(Receipt(order=order, email="b@b.c"))])
        (row,) = insert(order)
    assert job.status == "done"
    assert tasks.DONE == ["a@b.c", "b@b.c"]
    assert Receipt.objects.get(pk=row.pk).job.status == "pending"


def test_dummy_mode_keeps_the_row_with_its_job() -> None:
    row = Receipt(email="a@b.c")
    with dummy_jobs():
        with enqueued(send) as jobs:
            job = enqueue(send, row)
        assert jobs == [job]
        assert assert_enqueued(send).receipts_receipt is row
    assert row.job is job


def test_call_task_needs_no_database() -> None:
    assert call_task(send, Receipt(email="a@b.c")) == "a@b.c"
    assert call_task(remind, Reminder(email="r@b.c")).startswith("1 ")
    with pytest.raises(TypeError, match=r"takes an instance of receipts\.Receipt, not 7"):
        call_task(send, 7)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="missing a required argument"):
        call_task(charge)  # type: ignore[call-arg]


@pytest.mark.django_db
@pytest.mark.parametrize("state", ["failed", "done", "running", "retrying", "cancelled"])
def test_factories_make_rows_with_a_job_in_any_state(order: Order, state: str) -> None:
    options: Any = {state: True}
    row = ReceiptFactory.create(order=order, job=JobFactory.build(**options))
    other = ReceiptFactory.create(order=order)
    job = Job.objects.get(receipts_receipt=row)
    status = "retry" if state == "retrying" else state
    assert (job.status, job.task_path) == (status, send.module_path)
    assert Receipt.objects.get(job__status=status) == row
    assert other.job.status == "pending"
