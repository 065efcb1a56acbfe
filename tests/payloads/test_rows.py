"""A row is a job: inserted in any way, or with `enqueue()`. Which rows and calls are refused."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.core.management import call_command
from django.db import IntegrityError, connection, transaction
from django.test.utils import CaptureQueriesContext

from django_pgqueue import JobExists, Unique, aenqueue, cancel, enqueue, enqueue_many
from django_pgqueue.compat import InvalidTask
from django_pgqueue.exceptions import InvalidKey
from django_pgqueue.models import Job
from django_pgqueue.testing import run_jobs
from tests.app.tasks import noop
from tests.receipts.models import Charge, Order, Receipt, Reminder, SignedCharge, Visit
from tests.receipts.tasks import charge, remind, send, visit
from tests.support.databases import alias
from tests.support.jobs import fetch as execute, finish, value
from tests.support.sessions import Connect
from tests.support.wording import refusals

pytestmark = pytest.mark.django_db


def receipt(order: Order, email: str = "A@b.c", **fields: Any) -> Receipt:
    return Receipt(order=order, email=email, **fields)


def insert(order: Order, email: str = "a@b.c") -> Receipt:
    return Receipt.objects.create(order=order, email=email)


# -- inserted


@pytest.mark.promise("payload-row-is-job")
def test_every_way_to_insert_is_an_enqueue(order: Order) -> None:
    saved = insert(order)
    bulk = Receipt.objects.bulk_create([receipt(order, f"{n}@b.c") for n in range(3)])
    inserted = execute(
        "INSERT INTO receipts_receipt (order_id, email)"
        " SELECT %s, n || '@sql' FROM generate_series(1, 2) AS n RETURNING job_id", order.pk
    )  # fmt: skip
    with (
        connection.cursor() as cursor,
        cursor.copy("COPY receipts_receipt (order_id, email) FROM STDIN") as copy,
    ):
        copy.write_row((order.pk, "copy@b.c"))
    keys = {saved.pk, *(key for (key,) in inserted), *(row.pk for row in bulk)}
    assert len(keys) == 6
    copied = Receipt.objects.exclude(pk__in=keys).get()
    jobs = Job.objects.filter(task_path="tests.receipts.tasks.send", status="pending")
    assert {*jobs.values_list("pk", flat=True)} == {*keys, copied.pk}
    # Nothing inserted, no job.
    Receipt.objects.bulk_create([])
    execute("INSERT INTO receipts_receipt (order_id, email) SELECT 1, 'x' WHERE false")
    assert Job.objects.count() == 7


def test_a_row_is_a_job_with_the_policy_of_its_task(order: Order) -> None:
    job = insert(order).job
    enqueued = enqueue(send, receipt(order))
    varies = {"id", "run_after", "enqueued_at", "expires_at"}
    for field in Job._meta.concrete_fields:
        if field.name not in varies:
            assert getattr(job, field.attname) == getattr(enqueued, field.attname), field.name
    assert (job.queue_name, job.priority, job.max_attempts, job.timeout) == ("mail", 5, 3, 60)
    assert job.expires_at is not None
    assert job.expires_at - job.run_after == timedelta(hours=1)


@pytest.mark.promise("payload-row-is-job")
def test_a_rollback_leaves_neither_a_row_nor_its_job(order: Order) -> None:
    with transaction.atomic():
        insert(order)
        enqueue(send, receipt(order))
        transaction.set_rollback(True)
    assert not Receipt.objects.exists()
    assert not Job.objects.exists()


def refused(**values: Any) -> str:
    with pytest.raises(IntegrityError) as raised, transaction.atomic():
        Receipt.objects.create(email="a@b.c", **values)
    assert raised.value.__cause__.sqlstate == "23503"  # type: ignore[union-attr]
    return str(raised.value)


@pytest.mark.promise("payload-key")
def test_the_key_names_whose_job_it_is(order: Order) -> None:
    other = enqueue(noop)
    message = refused(job_id=other.pk, order=order)
    problem = "it is a job of tests.app.tasks.noop"
    assert f"job {other.pk} cannot have a row in receipts_receipt: {problem}" in message
    assert "Leave job_id out" in message
    over = insert(order)
    cancel(over.job)
    Receipt.objects.filter(pk=over.pk).delete()
    message = refused(job_id=over.pk, order=order)
    assert f"job {over.pk} cannot have a row in receipts_receipt: it is finished" in message
    assert "does not come from the sequence" in refused(job_id=2**62, order=order)


def test_a_row_without_a_declared_task_is_refused(order: Order) -> None:
    execute("DELETE FROM pgqueue_task WHERE task_path = 'tests.receipts.tasks.send'")
    message = refused(order=order)
    assert "the task tests.receipts.tasks.send of receipts_receipt is not declared" in message
    assert "manage.py migrate" in message


def test_the_key_never_changes(order: Order) -> None:
    row = insert(order)
    Receipt.objects.filter(pk=row.pk).update(email="b@b.c", job_id=row.pk)
    with pytest.raises(IntegrityError, match="job_id of a row in receipts_receipt never changes"):
        Receipt.objects.filter(pk=row.pk).update(job_id=row.pk + 1)


def test_a_row_in_two_tables_is_one_job_with_relations_in_both_directions(order: Order) -> None:
    signed = SignedCharge.objects.create(order=order, email="a@b.c", signature="ann")
    job = Job.objects.get(receipts_charge__order=order)
    assert (job.pk, job.task_path) == (signed.pk, "tests.receipts.tasks.charge")
    assert Charge.objects.select_related("job").get(job__status="pending").signedcharge.signature == "ann"
    assert job.receipts_charge.signedcharge == signed
    cancel(job)
    assert Charge.objects.filter(job__status="cancelled").count() == 1


# -- deleted


@pytest.mark.promise("payload-deleted")
def test_deleting_rows_cancels_their_jobs(order: Order) -> None:
    waiting, over = insert(order), insert(order)
    other = insert(Order.objects.create())
    cancel(over.job)
    order.delete()  # Django deletes the receipts, too
    job = Job.objects.get(pk=waiting.pk)
    assert (job.status, job.waiting_reason) == ("cancelled", "its row in receipts_receipt was deleted")
    assert Job.objects.get(pk=over.pk).waiting_reason == ""
    assert Job.objects.get(pk=other.pk).status == "pending"


@pytest.mark.django_db(transaction=True)
@pytest.mark.promise("payload-deleted")
def test_deleting_the_row_of_a_running_job_asks_it_to_stop(order: Order, connect: Connect) -> None:
    row = insert(order)
    worker = connect(autocommit=True)
    worker.execute(
        "UPDATE pgqueue_job_live SET status = 'running', attempts = 1, worker = 1, lease = 1,"
        " started_at = clock_timestamp(), last_attempted_at = clock_timestamp()"
    )
    key = row.pk
    row.delete()
    assert value(worker, "SELECT cancel_requested_at IS NOT NULL FROM pgqueue_job_live") is True
    assert finish(worker, [key], "cancelled") == [key]


@pytest.mark.django_db(transaction=True)
def test_a_flush_leaves_the_declarations(order: Order) -> None:
    insert(order)
    call_command("flush", interactive=False, verbosity=0)
    assert not Job.objects.exists()
    insert(Order.objects.create())
    execute("TRUNCATE receipts_receipt")
    assert [each.outcome for each in run_jobs()] == ["cancelled"]


# -- enqueued


def test_the_options_of_a_call(order: Order, wording: Any) -> None:
    row = receipt(order)
    delayed = send.using(
        priority=9, queue_name="slow", run_after=timedelta(hours=2), limit_key="k", group_key="g",
        metadata={"by": "ann"},
    )  # fmt: skip
    job = enqueue(delayed, row)
    assert row.job_id == row.pk == job.pk
    assert Receipt.objects.get() == row
    assert (row.email, job.args, job.kwargs) == ("a@b.c", [], {})  # its save() was called
    names = ("priority", "queue_name", "group_key", "limit_key", "metadata")
    assert Job.objects.values(*names).get() == wording
    assert job.run_after - job.enqueued_at == timedelta(hours=2)


def test_all_ways_to_enqueue(order: Order) -> None:
    keyword = enqueue(send, receipt=receipt(order))  # type: ignore[call-arg]
    result = send.enqueue(receipt(order))
    assert result.args == []
    waited = async_to_sync(aenqueue)(remind, Reminder(order=order, email="r@b.c"))
    assert {int(result.id), keyword.pk} == {*Receipt.objects.values_list("pk", flat=True)}
    assert Reminder.objects.get().pk == waited.pk


def test_many_payloads_and_other_calls(order: Order) -> None:
    rows = [receipt(order, f"{n}@b.c") for n in range(3)]
    reminder = Reminder(order=order, email="r@b.c")
    signed = SignedCharge(order=order, email="s@b.c", signature="x")
    others = [noop.bind(), remind.bind(reminder), charge.bind(signed)]
    with CaptureQueriesContext(connection) as queries:
        ids = enqueue_many([*(send.bind(row) for row in rows), *others]).ids
    assert [row.pk for row in rows] == ids[:3]
    assert (reminder.pk, signed.pk) == (ids[4], ids[5])
    assert [*Receipt.objects.order_by("pk").values_list("email", flat=True)] == ["0@b.c", "1@b.c", "2@b.c"]
    assert SignedCharge.objects.get().charge_ptr_id == ids[5]
    assert sum("_pgqueue_enqueue_many" in query["sql"] for query in queries) == 1
    assert sum('INSERT INTO "receipts_receipt"' in query["sql"] for query in queries) == 1


def test_keys_in_columns_are_those_of_an_enqueue(order: Order) -> None:
    rows: list[dict[str, Any]] = [
        {"order": order, "customer": "ann"}, {"order": None, "customer": None},
        {"order_id": str(order.pk), "customer": "bob"},  # normalized as the database does
    ]  # fmt: skip
    inserted = [row.job for row in Visit.objects.bulk_create([Visit(**row) for row in rows])]
    enqueued = [enqueue(visit, Visit(**row)) for row in rows]
    key = f"tests.receipts.tasks.visit/{order.pk}"
    for jobs in (inserted, enqueued):
        assert [(job.limit_key, job.group_key) for job in jobs] == [(key, "ann"), (None, None), (key, "bob")]
    assert [job.wait_position for job in inserted] == [inserted[0].pk, None, inserted[2].pk]
    with pytest.raises(Exception, match=r"the group of job .* is empty"), transaction.atomic():
        Visit.objects.create(customer="")


@pytest.mark.parametrize("many", [False, True])
def test_a_row_that_the_database_refuses_leaves_nothing_and_can_be_enqueued_again(
    order: Order, many: bool
) -> None:
    row = receipt(order, "refused")
    with pytest.raises(IntegrityError, match="receipt_email"):
        enqueue_many([send.bind(receipt(order)), send.bind(row)]) if many else enqueue(send, row)
    assert not Job.objects.exists()
    row.email = "fine@b.c"
    assert enqueue(send, row).pk == Receipt.objects.get().pk


def test_mistakes(order: Order, wording: Any) -> None:
    saved, twice = insert(order), receipt(order)
    wrong: dict[type[Exception], list[tuple[Any, ...]]] = {
        TypeError: [(Reminder(order=order),), (Receipt,), (7,), (receipt(order), True), ()],
        ValueError: [(saved,), (receipt(order, job_id=5),)],
    }
    for error, several in wrong.items():
        calls: list[Any] = [partial(enqueue, send, *args) for args in several]
        calls += [lambda args=args: enqueue_many([send.bind(*args)]) for args in several]
        assert refusals(error, *calls).replace(f"job: {saved.pk}", "job: <id>") == wording
    with pytest.raises(ValueError, match="one payload is in several calls"):
        enqueue_many([send.bind(twice), send.bind(twice)])
    assert Job.objects.count() == 1


def test_a_save_that_does_not_save(order: Order, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Receipt, "save", lambda *args, **kwargs: None)
    with pytest.raises(RuntimeError, match=r"Receipt.save\(\) has not saved the payload of job"):
        enqueue(send, receipt(order))
    assert not Job.objects.exists()


# -- unique keys of calls


def test_an_existing_job_keeps_its_payload(order: Order) -> None:
    keyed = send.using(unique_key="one")
    second = receipt(order, "second@b.c")
    job = enqueue(keyed, receipt(order))
    for again in (enqueue(keyed, second), *enqueue_many([keyed.bind(second)])):
        assert (again.pk, again.enqueue_outcome, second._state.adding) == (job.pk, "existing", True)
    with pytest.raises(JobExists):
        enqueue(send.using(unique=Unique(name="one", key=(), on_conflict="raise")), second)
    assert Receipt.objects.get().email == "a@b.c"


@pytest.mark.parametrize("many", [False, True])
def test_a_replaced_job_gets_the_new_payload(order: Order, many: bool) -> None:
    replacing = send.using(unique=Unique(key=lambda receipt: receipt.order_id, on_conflict="replace"))
    job = enqueue(replacing, receipt(order))
    second = receipt(order, "Second@b.c")
    again = enqueue_many([replacing.bind(second)])[0] if many else enqueue(replacing, second)
    assert (again.pk, again.enqueue_outcome) == (job.pk, "replaced")
    assert (second.pk, Receipt.objects.get().email) == (job.pk, "second@b.c")


def test_there_are_no_arguments_to_compare() -> None:
    for unique in (True, Unique(), Unique(key="receipt")):
        with pytest.raises(InvalidTask, match="its calls have no arguments to compare"):
            send.using(unique=unique)
    broken = send.using(unique=Unique(key=lambda receipt: receipt.nothing))
    with pytest.raises(InvalidKey, match="has no attribute 'nothing'"):
        enqueue(broken, Receipt(email="a@b.c"))


# -- databases


@pytest.mark.django_db(databases=["default", "other"])
def test_a_call_in_another_database_stores_its_row_there() -> None:
    order = Order.objects.using("other").create()
    there = send.using(database="other")
    row = receipt(order)
    job = enqueue(there, row)
    enqueue_many([there.bind(receipt(order, "b@b.c"))])
    assert (job._state.db, row._state.db) == ("other", "other")
    assert Receipt.objects.using("other").count() == Job.objects.using("other").count() == 2
    assert not Receipt.objects.exists()
    assert [ran.result for ran in run_jobs(using="other")] == ["a@b.c", "b@b.c"]
    with pytest.raises(IntegrityError, match="not declared in this database"), transaction.atomic("other"):
        Receipt.objects.using("other").create(order=order, email="a@b.c")


@pytest.mark.usefixtures("without_table")
def test_a_database_without_the_table(order: Order) -> None:
    with pytest.raises(InvalidTask, match=r"the database routers keep receipts.Receipt out of it"):
        enqueue(send, receipt(order))


@pytest.mark.django_db(transaction=True)
def test_parameters_that_the_server_binds() -> None:
    options: dict[str, Any] = {"server_side_binding": True}
    with alias("bound", OPTIONS=options) as name:
        order = Order.objects.using(name).create()
        rows = Receipt.objects.using(name).bulk_create([receipt(order, f"{n}@b.c") for n in range(3)])
        assert Receipt.objects.using(name).filter(job__status="pending").count() == 3
        enqueue(send.using(database=name), receipt(order))
        Receipt.objects.using(name).filter(pk=rows[0].pk).delete()
    assert Job.objects.get(pk=rows[0].pk).status == "cancelled"
