"""The triggers of payload tables: which rows become jobs, and which are refused."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction

from django_pgqueue import cancel, enqueue
from django_pgqueue.models import Job
from tests.app.tasks import noop
from tests.receipts.models import Charge, Order, Receipt, SignedCharge, Visit
from tests.receipts.tasks import send, visit
from tests.support.jobs import finish, value
from tests.support.sessions import Connect

pytestmark = pytest.mark.django_db


@pytest.fixture
def order() -> Order:
    return Order.objects.create(total=5)


def test_a_row_is_a_job_with_the_policy_of_its_task(order: Order) -> None:
    job = Receipt.objects.create(order=order, email="A@b.c").job
    enqueued = enqueue(send, Receipt(order=order, email="a@b.c"))
    varies = {"id", "run_after", "enqueued_at", "expires_at"}
    for field in Job._meta.concrete_fields:
        if field.name not in varies:
            assert getattr(job, field.attname) == getattr(enqueued, field.attname), field.name
    assert (job.queue_name, job.priority, job.max_attempts, job.timeout) == ("mail", 5, 3, 60)
    assert job.expires_at is not None
    assert job.expires_at - job.run_after == timedelta(hours=1)


@pytest.mark.promise("payload-row-is-job")
def test_every_way_to_insert_is_an_enqueue(order: Order) -> None:
    saved = Receipt(order=order, email="s@b.c")
    saved.save()
    bulk = Receipt.objects.bulk_create([Receipt(order=order, email=f"{n}@b.c") for n in range(3)])
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO receipts_receipt (order_id, email)"
            " SELECT %s, n || '@sql' FROM generate_series(1, 2) AS n RETURNING job_id", [order.pk]
        )  # fmt: skip
        inserted = [row[0] for row in cursor.fetchall()]
        with cursor.copy("COPY receipts_receipt (order_id, email) FROM STDIN") as copy:
            copy.write_row((order.pk, "copy@b.c"))
    keys = {saved.pk, *inserted, *(row.pk for row in bulk)}
    assert len(keys) == 6
    copied = Receipt.objects.exclude(pk__in=keys).get()
    jobs = Job.objects.filter(task_path="tests.receipts.tasks.send", status="pending")
    assert {*jobs.values_list("pk", flat=True)} == {*keys, copied.pk}


@pytest.mark.promise("payload-row-is-job")
def test_a_rollback_leaves_neither_a_row_nor_its_job(order: Order) -> None:
    with transaction.atomic():
        Receipt.objects.create(order=order, email="a@b.c")
        enqueue(send, Receipt(order=order, email="a@b.c"))
        transaction.set_rollback(True)
    assert not Receipt.objects.exists()
    assert not Job.objects.exists()


def test_a_statement_that_inserts_nothing_makes_no_job(order: Order) -> None:
    Receipt.objects.bulk_create([])
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO receipts_receipt (order_id, email) SELECT 1, 'x' WHERE false")
    assert not Job.objects.exists()


def refused(**values: Any) -> str:
    with pytest.raises(IntegrityError) as raised, transaction.atomic():
        Receipt.objects.create(**values)
    assert raised.value.__cause__.sqlstate == "23503"  # type: ignore[union-attr]
    return str(raised.value)


@pytest.mark.promise("payload-key")
def test_the_key_tells_whose_job_it_is(order: Order) -> None:
    other = enqueue(noop)
    message = refused(job_id=other.pk, order=order, email="a@b.c")
    assert (
        f"job {other.pk} cannot have a row in receipts_receipt: it is a job of tests.app.tasks.noop"
        in message
    )
    assert "Leave job_id out" in message
    over = Receipt.objects.create(order=order, email="a@b.c")
    cancel(over.job)
    Receipt.objects.filter(pk=over.pk).delete()
    assert f"job {over.pk} cannot have a row in receipts_receipt: it is over" in refused(
        job_id=over.pk, order=order, email="a@b.c"
    )
    assert "does not come from the sequence" in refused(job_id=2**62, order=order, email="a@b.c")


def test_a_row_without_a_declared_task_is_refused(order: Order) -> None:
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM pgqueue_task WHERE task_path = 'tests.receipts.tasks.send'")
    message = refused(order=order, email="a@b.c")
    assert "the task tests.receipts.tasks.send of receipts_receipt is not declared" in message
    assert "manage.py migrate" in message


def test_the_key_never_changes(order: Order) -> None:
    receipt = Receipt.objects.create(order=order, email="a@b.c")
    Receipt.objects.filter(pk=receipt.pk).update(email="b@b.c", job_id=receipt.pk)
    with pytest.raises(IntegrityError, match="job_id of a row in receipts_receipt never changes"):
        Receipt.objects.filter(pk=receipt.pk).update(job_id=receipt.pk + 1)


@pytest.mark.promise("payload-deleted")
def test_deleting_rows_cancels_their_jobs(order: Order) -> None:
    waiting, over = (Receipt.objects.create(order=order, email=f"{n}@b.c") for n in range(2))
    other = Receipt.objects.create(order=Order.objects.create(), email="other@b.c")
    cancel(over.job)
    order.delete()  # Django deletes the receipts, too
    job = Job.objects.get(pk=waiting.pk)
    assert (job.status, job.waiting_reason) == ("cancelled", "its row in receipts_receipt was deleted")
    assert Job.objects.get(pk=over.pk).waiting_reason == ""
    assert Job.objects.get(pk=other.pk).status == "pending"


def test_a_cascade_of_the_database_cancels_jobs(order: Order) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "ALTER TABLE receipts_receipt"
            " ADD FOREIGN KEY (order_id) REFERENCES receipts_order ON DELETE CASCADE"
        )
        receipt = Receipt.objects.create(order=order, email="a@b.c")
        cursor.execute("DELETE FROM receipts_order")
    assert Job.objects.get(pk=receipt.pk).status == "cancelled"


@pytest.mark.django_db(transaction=True)
@pytest.mark.promise("payload-deleted")
def test_deleting_the_row_of_a_running_job_asks_it_to_stop(order: Order, connect: Connect) -> None:
    receipt = Receipt.objects.create(order=order, email="a@b.c")
    worker = connect(autocommit=True)
    worker.execute(
        "UPDATE pgqueue_job_live SET status = 'running', attempts = 1, worker = 1, lease = 1,"
        " started_at = clock_timestamp(), last_attempted_at = clock_timestamp()"
    )
    key = receipt.pk
    receipt.delete()
    assert value(worker, "SELECT cancel_requested_at IS NOT NULL FROM pgqueue_job_live") is True
    assert finish(worker, [key], "cancelled") == [key]


def test_keys_in_columns_are_those_of_an_enqueue(order: Order) -> None:
    rows: list[dict[str, Any]] = [
        {"order": order, "customer": "ann"}, {"order": None, "customer": None},
        {"order": order, "customer": "bob"},
    ]  # fmt: skip
    inserted = [row.job for row in Visit.objects.bulk_create([Visit(**row) for row in rows])]
    enqueued = [enqueue(visit, Visit(**row)) for row in rows]
    keys = [(job.limit_key, job.group_key) for job in enqueued]
    assert keys == [(f"tests.receipts.tasks.visit/{order.pk}", "ann"), (None, None),
                    (f"tests.receipts.tasks.visit/{order.pk}", "bob")]  # fmt: skip
    assert [(job.limit_key, job.group_key) for job in inserted] == keys
    assert [job.wait_position for job in inserted] == [inserted[0].pk, None, inserted[2].pk]
    with pytest.raises(Exception, match=r"the group of job .* is empty"), transaction.atomic():
        Visit.objects.create(customer="")


def test_a_row_in_two_tables_is_one_job(order: Order) -> None:
    signed = SignedCharge.objects.create(order=order, email="a@b.c", signature="ann")
    job = Job.objects.get()
    assert (job.pk, job.task_path) == (signed.pk, "tests.receipts.tasks.charge")
    assert Charge.objects.get(job=job).signedcharge.signature == "ann"


def test_joins_in_both_directions(order: Order) -> None:
    receipt = Receipt.objects.create(order=order, email="a@b.c")
    assert Receipt.objects.filter(job__status="pending").get() == receipt
    assert Receipt.objects.select_related("job").get().job.queue_name == "mail"
    assert not Receipt.objects.filter(job__status__in=["failed", "done"]).exists()
    assert Job.objects.filter(receipts_receipt__order=order).get().receipts_receipt == receipt
    cancel(receipt.job)
    assert Receipt.objects.filter(job__status="cancelled").count() == 1
