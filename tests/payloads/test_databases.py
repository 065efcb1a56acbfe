"""Payloads in a second database, fixtures, parameters that the server binds, and emptied tables."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.db import IntegrityError, connection, transaction

from django_pgqueue import enqueue, enqueue_many
from django_pgqueue.models import Job
from django_pgqueue.testing import run_jobs
from tests.receipts.models import Order, Receipt
from tests.receipts.tasks import send
from tests.support.databases import alias


@pytest.mark.django_db(databases=["default", "other"])
def test_a_call_in_another_database_stores_its_row_there() -> None:
    order = Order.objects.using("other").create()
    there = send.using(database="other")
    row = Receipt(order=order, email="a@b.c")
    job = enqueue(there, row)
    enqueue_many([there.bind(Receipt(order=order, email="b@b.c"))])
    assert (job._state.db, row._state.db) == ("other", "other")
    assert Receipt.objects.using("other").count() == Job.objects.using("other").count() == 2
    assert not Receipt.objects.exists()
    assert [ran.result for ran in run_jobs(using="other")] == ["a@b.c", "b@b.c"]


@pytest.mark.django_db(databases=["default", "other"])
def test_a_row_where_the_jobs_of_its_task_do_not_go() -> None:
    order = Order.objects.using("other").create()
    with pytest.raises(IntegrityError, match="not declared in this database"), transaction.atomic("other"):
        Receipt.objects.using("other").create(order=order, email="a@b.c")


@pytest.mark.django_db
def test_fixtures(tmp_path: Path) -> None:
    order = Order.objects.create()
    job = Job.objects.create(task_path=send.module_path)

    def load(key: int | None) -> None:
        fields = {"order": order.pk, "email": "a@b.c"}
        path = tmp_path / "rows.json"
        path.write_text(json.dumps([{"model": "receipts.receipt", "pk": key, "fields": fields}]))
        with transaction.atomic():
            call_command("loaddata", str(path), verbosity=0)

    load(job.pk)  # after its job, as dumpdata sorts them
    load(None)  # a row without a key is enqueued
    assert Receipt.objects.filter(job__status="pending").count() == 2
    with pytest.raises(IntegrityError, match="does not come from the sequence"):
        load(2**62)


@pytest.mark.django_db(transaction=True)
def test_parameters_that_the_server_binds() -> None:
    options: dict[str, Any] = {"server_side_binding": True}
    with alias("bound", OPTIONS=options) as name:
        order = Order.objects.using(name).create()
        rows = Receipt.objects.using(name).bulk_create(
            [Receipt(order=order, email=f"{n}@b.c") for n in range(3)]
        )
        assert Receipt.objects.using(name).filter(job__status="pending").count() == 3
        enqueue(send.using(database=name), Receipt(order=order, email="x@b.c"))
        Receipt.objects.using(name).filter(pk=rows[0].pk).delete()
    assert Job.objects.get(pk=rows[0].pk).status == "cancelled"


@pytest.mark.django_db(transaction=True)
def test_a_flush_leaves_the_declarations() -> None:
    Receipt.objects.create(order=Order.objects.create(), email="a@b.c")
    call_command("flush", interactive=False, verbosity=0)
    assert not Job.objects.exists()
    Receipt.objects.create(order=Order.objects.create(), email="a@b.c")
    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE receipts_receipt")
    ran = run_jobs()
    assert [each.outcome for each in ran] == ["cancelled"]
