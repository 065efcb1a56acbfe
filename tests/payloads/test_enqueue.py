"""`enqueue()` and `enqueue_many()` with payloads."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import IntegrityError, connection
from django.test.utils import CaptureQueriesContext

from django_pgqueue import JobExists, Unique, aenqueue, enqueue, enqueue_many
from django_pgqueue.compat import InvalidTask
from django_pgqueue.exceptions import InvalidKey
from django_pgqueue.models import Job
from tests.app.tasks import noop
from tests.receipts.models import Charge, Order, Receipt, Reminder, SignedCharge, Visit
from tests.receipts.tasks import charge, remind, send, visit

pytestmark = pytest.mark.django_db


@pytest.fixture
def order() -> Order:
    return Order.objects.create(total=5)


def receipt(order: Order, email: str = "A@b.c", **fields: Any) -> Receipt:
    return Receipt(order=order, email=email, **fields)


def test_the_options_of_a_call(order: Order) -> None:
    row = receipt(order)
    delayed = send.using(
        priority=9, queue_name="slow", run_after=timedelta(hours=2), limit_key="k", group_key="g",
        metadata={"by": "ann"},
    )  # fmt: skip
    job = enqueue(delayed, row)
    assert row.job_id == row.pk == job.pk
    assert Receipt.objects.get() == row
    assert (row.email, job.args, job.kwargs) == ("a@b.c", [], {})  # its save() was called
    stored = Job.objects.get()
    assert (stored.priority, stored.queue_name, stored.group_key) == (9, "slow", "g")
    assert stored.limit_key == "tests.receipts.tasks.send/k"
    assert stored.metadata == {"kind": "receipt", "by": "ann"}
    assert stored.run_after - stored.enqueued_at == timedelta(hours=2)


def test_all_ways_to_enqueue(order: Order) -> None:
    keyword = enqueue(send, receipt=receipt(order))  # type: ignore[call-arg]
    result = send.enqueue(receipt(order))
    assert result.args == []
    waited = async_to_sync(aenqueue)(remind, Reminder(order=order, email="r@b.c"))
    assert {int(result.id), keyword.pk} == {*Receipt.objects.values_list("pk", flat=True)}
    assert Reminder.objects.get().pk == waited.pk


def test_many_payloads_and_other_calls(order: Order) -> None:
    rows = [receipt(order, f"{n}@b.c") for n in range(3)]
    reminder, signed = (
        Reminder(order=order, email="r@b.c"),
        SignedCharge(order=order, email="s@b.c", signature="x"),
    )
    with CaptureQueriesContext(
        connection,
    ) as queries:
        ids = enqueue_many(
            [*(send.bind(row) for row in rows), noop.bind(), remind.bind(reminder), charge.bind(signed)]
        ).ids
    assert [row.pk for row in rows] == ids[:3]
    assert (reminder.pk, signed.pk) == (ids[4], ids[5])
    assert [*Receipt.objects.order_by("pk").values_list("email", flat=True)] == ["0@b.c", "1@b.c", "2@b.c"]
    assert SignedCharge.objects.get().charge_ptr_id == ids[5]
    assert sum("_pgqueue_enqueue_many" in query["sql"] for query in queries) == 1
    assert sum('INSERT INTO "receipts_receipt"' in query["sql"] for query in queries) == 1


def test_a_plain_job_pays_nothing(order: Order, django_assert_num_queries: Any) -> None:
    enqueue(noop)
    with django_assert_num_queries(1):
        enqueue(noop)
    with django_assert_num_queries(1):
        enqueue_many(noop.bind() for _ in range(10))


@pytest.mark.parametrize("many", [False, True])
def test_a_row_that_the_database_refuses_leaves_nothing_and_can_be_enqueued_again(
    order: Order, many: bool
) -> None:
    row = receipt(order, "refused")
    calls = [send.bind(receipt(order)), send.bind(row)]
    with pytest.raises(IntegrityError, match="receipt_email"):
        enqueue_many(calls) if many else enqueue(send, row)
    assert not Job.objects.exists()
    row.email = "fine@b.c"
    assert enqueue(send, row).pk == Receipt.objects.get().pk


def test_mistakes(order: Order) -> None:
    saved = Receipt.objects.create(order=order, email="a@b.c")
    wrong: list[tuple[tuple[Any, ...], type[Exception], str]] = [
        ((saved,), ValueError, f"saved already, so it has a job: {saved.pk}"),
        ((receipt(order, job_id=saved.pk),), ValueError, "before it has a job"),
        (
            (Reminder(order=order, email="r@b.c"),),
            TypeError,
            "takes an instance of receipts.Receipt, not <Reminder",
        ),
        ((Receipt,), TypeError, "takes an instance of receipts.Receipt, not its class"),
        ((7,), TypeError, "takes an instance of receipts.Receipt, not 7"),
        ((receipt(order), True), TypeError, "too many positional arguments"),
        ((), TypeError, "missing a required argument: 'receipt'"),
    ]
    for args, kind, message in wrong:
        with pytest.raises(kind, match=message):
            enqueue(send, *args)
        with pytest.raises(kind, match=message):
            enqueue_many([send.bind(*args)])
    twice = receipt(order)
    with pytest.raises(ValueError, match="one payload is in several calls"):
        enqueue_many([send.bind(twice), send.bind(twice)])
    assert Job.objects.count() == 1


def test_a_save_that_does_not_save(order: Order, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Receipt, "save", lambda *args, **kwargs: None)
    with pytest.raises(RuntimeError, match=r"Receipt.save\(\) has not saved the payload of job"):
        enqueue(send, receipt(order))
    assert not Job.objects.exists()


def test_a_database_without_the_table(order: Order, settings: Any) -> None:
    settings.DATABASE_ROUTERS = [NoReceipts()]
    with pytest.raises(InvalidTask, match=r"the database routers keep receipts.Receipt out of it"):
        enqueue(send, receipt(order))


class NoReceipts:
    def allow_migrate(self, db: str, app_label: str, **hints: Any) -> bool:
        return app_label != "receipts"


class TestUnique:
    """Unique keys of calls."""

    def test_an_existing_job_keeps_its_payload(self, order: Order) -> None:
        first, second = receipt(order), receipt(order, "second@b.c")
        job = enqueue(send.using(unique_key="one"), first)
        again = enqueue(send.using(unique_key="one"), second)
        assert (again.pk, again.enqueue_outcome, second._state.adding) == (job.pk, "existing", True)
        assert Receipt.objects.get().email == "a@b.c"
        with pytest.raises(JobExists):
            enqueue(send.using(unique=Unique(name="one", key=(), on_conflict="raise")), second)
        (again,) = enqueue_many([send.using(unique_key="one").bind(second)])
        assert (again.pk, again.enqueue_outcome) == (job.pk, "existing")

    @pytest.mark.parametrize("many", [False, True])
    def test_a_replaced_job_gets_the_new_payload(self, order: Order, many: bool) -> None:
        replacing = send.using(unique=Unique(key=lambda receipt: receipt.order_id, on_conflict="replace"))
        job = enqueue(replacing, receipt(order))
        second = receipt(order, "Second@b.c")
        if many:
            (again,) = enqueue_many([replacing.bind(second)])
            assert (again.pk, again.enqueue_outcome) == (job.pk, "replaced")
        else:
            assert enqueue(replacing, second).enqueue_outcome == "replaced"
        assert (second.pk, Receipt.objects.get().email) == (job.pk, "second@b.c")

    def test_there_are_no_arguments_to_compare(self) -> None:
        for unique in (True, Unique(), Unique(key="receipt")):
            with pytest.raises(InvalidTask, match="its calls have no arguments to compare"):
                send.using(unique=unique)
        broken = send.using(unique=Unique(key=lambda receipt: receipt.nothing))
        with pytest.raises(InvalidKey, match="has no attribute 'nothing'"):
            enqueue(broken, Receipt(email="a@b.c"))


def test_a_key_is_normalized_as_the_database_does(order: Order) -> None:
    job = enqueue(visit, Visit(order_id=str(order.pk), customer="ann"))
    assert job.limit_key == f"tests.receipts.tasks.visit/{order.pk}"


def test_keeping_rows_needs_no_job(order: Order) -> None:
    job = enqueue(charge, Charge(order=order, email="a@b.c"))
    assert Charge.objects.get(job=job).paid is False
