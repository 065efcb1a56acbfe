"""Payloads in the test kit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from django_pgqueue import enqueue, enqueue_many
from django_pgqueue.models import Job
from django_pgqueue.testing import assert_enqueued, call_task, dummy_jobs, enqueued, immediate_jobs, run_jobs
from django_pgqueue.testing.factories import JobFactory, PayloadFactory
from tests.receipts import tasks
from tests.receipts.models import Charge, Order, Receipt, Reminder
from tests.receipts.tasks import charge, remind, send


class ReceiptFactory(PayloadFactory):
    """As a project writes it."""

    class Meta:
        model = Receipt

    email = "made@b.c"


@pytest.fixture(autouse=True)
def _nothing_done() -> Iterator[None]:
    tasks.DONE.clear()
    yield
    tasks.HOOKS.clear()


@pytest.mark.django_db
def test_run_jobs_runs_rows_in_the_transaction_of_the_test() -> None:
    order = Order.objects.create()
    Receipt.objects.create(order=order, email="a@b.c")
    Reminder.objects.create(order=order, email="r@b.c")
    Charge.objects.create(order=order, email="c@b.c")
    ran = {each.task_path.rpartition(".")[2]: each.result for each in run_jobs()}
    assert (ran["send"], ran["charge"]) == ("a@b.c", True)
    assert sorted(tasks.DONE) == ["a@b.c", "r@b.c"]
    Receipt.objects.create(order=order, email="b@b.c")
    order.delete()
    assert run_jobs() == []


@pytest.mark.django_db
def test_immediate_mode_runs_enqueued_rows_and_leaves_inserted_ones() -> None:
    order = Order.objects.create()
    with immediate_jobs(at_once=True):
        job = enqueue(send, Receipt(order=order, email="a@b.c"))
        enqueue_many([send.bind(Receipt(order=order, email="b@b.c"))])
        row = Receipt.objects.create(order=order, email="c@b.c")
    assert job.status == "done"
    assert tasks.DONE == ["a@b.c", "b@b.c"]
    assert row.job.status == "pending"


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
def test_factories_make_rows_with_a_job_in_any_state(state: str) -> None:
    order = Order.objects.create()
    options: Any = {state: True}
    row = ReceiptFactory.create(order=order, job=JobFactory.build(**options))
    other = ReceiptFactory.create(order=order)
    job = Job.objects.get(receipts_receipt=row)
    status = "retry" if state == "retrying" else state
    assert (job.status, job.task_path) == (status, send.module_path)
    assert Receipt.objects.get(job__status=status) == row
    assert other.job.status == "pending"
