"""The examples in SQL."""

from __future__ import annotations

import re

import pytest
from django.db import IntegrityError, connections, transaction

import django_pgqueue
from django_pgqueue import enqueue, enqueue_many
from django_pgqueue.maintenance.payloads import synchronize_tasks
from django_pgqueue.models import Job, Pause, Worker
from tests.support.factories import WorkerFactory

from .shop import example, fresh, in_shop, run, statements


@in_shop
def test_enqueue_from_sql() -> None:
    order = example("models").Order.objects.create(pk=1, email="ann@example.com")
    synchronize_tasks("default")  # as migrate does
    with connections["default"].cursor() as cursor:
        cursor.execute(statements("enqueue"))
    first, second = Job.objects.order_by("pk")
    assert (first.args, first.queue_name, first.max_attempts) == ([order.pk], "mail", 5)
    assert (second.kwargs, second.queue_name, second.priority) == ({"order_id": 1}, "receipts", 10)
    assert run(first).status == "done"


@in_shop
def test_enqueue_from_a_trigger() -> None:
    order = example("models").Order.objects.create(email="ann@example.com")
    with connections["default"].cursor() as cursor:
        cursor.execute(statements("trigger"))
        try:
            type(order).objects.update(paid=True)
            assert Job.objects.get().args == [order.pk]
        finally:
            cursor.execute("DROP FUNCTION shop_order_paid CASCADE")


@in_shop
def test_control_from_sql() -> None:
    receipt = example("tasks").send_receipt
    ids = enqueue_many(receipt.bind(number) for number in range(3)).ids
    with connections["default"].cursor() as cursor:
        cursor.execute(re.sub(r"\b[123]\b", lambda found: str(ids[int(found[0]) - 1]), statements("control")))
    assert {job.status for job in Job.objects.all()} == {"cancelled"}


@in_shop
def test_edit_from_sql() -> None:
    receipt = example("tasks").send_receipt
    ids = enqueue_many(receipt.bind(number) for number in range(3)).ids
    with connections["default"].cursor() as cursor:
        cursor.execute(re.sub(r"\[1, 2\]", lambda _: f"[{ids[0]}, {ids[1]}]", statements("edit")))
    found = [(job.priority, job.queue_name) for job in Job.objects.order_by("pk")]
    assert found == [(10, "slow"), (10, "slow"), (0, "slow")]


@in_shop
def test_pause_from_sql() -> None:
    with connections["default"].cursor() as cursor:
        cursor.execute(statements("pause"))
    assert list(Pause.objects.order_by("kind").values_list("kind", "name")) == [
        ("queue", "mail"),
        ("task", "shop.tasks.send_receipt"),
    ]


@in_shop
def test_drain_from_sql() -> None:
    WorkerFactory.create(pk=4711)
    with connections["default"].cursor() as cursor:
        cursor.execute(statements("drain_worker"))
        assert cursor.fetchall() == [(True,)]
    assert Worker.objects.get().drain == "stop"


@in_shop
def test_the_words_for_a_status_in_sql() -> None:
    job = enqueue(example("tasks").send_receipt, 1)
    query = re.sub(r"\b1\b", str(job.pk), statements("statuses"))
    with connections["default"].cursor() as cursor:
        cursor.execute(query)
        assert cursor.fetchall() == [("pending", True, False)]
        django_pgqueue.cancel(job)
        cursor.execute(query)
        assert cursor.fetchall() == [("cancelled", False, True)]


@in_shop
def test_depth_by_sql() -> None:
    enqueue_many(example("tasks").send_receipt.bind(number) for number in range(3))
    with connections["default"].cursor() as cursor:
        cursor.execute(statements("depth"))
        assert [row[:3] for row in cursor.fetchall()] == [("mail", "pending", 3)]


@in_shop
def test_finish_from_sql() -> None:
    """Another program claims a job (here: the worker's statement) and reports it by the procedure."""
    job = enqueue(example("tasks").send_receipt, 1)
    Job.objects.filter(pk=job.pk).update(status="running", lease=77, worker=5, attempts=1)
    call = statements("finish").replace(":job", str(job.pk)).replace(":lease", "77")
    with connections["default"].cursor() as cursor:
        cursor.execute(call)
        assert fresh(job).result == {"sent": True}
        with pytest.raises(IntegrityError) as refusal:
            cursor.execute(call)
    assert getattr(refusal.value.__cause__, "sqlstate", "") == "23Q01"


@in_shop
def test_the_calls_of_a_worker_in_another_language() -> None:
    with connections["default"].cursor() as cursor:
        cursor.execute("SELECT pgqueue_enqueue('media.ratio', '[8, 2]', queue_name => 'media')")
        known: dict[str, object] = {}
        answers = []
        for statement in filter(str.strip, statements("worker").split(";\n")):
            cursor.execute(re.sub(r":(worker|job|lease)\b", lambda found: str(known[found[1]]), statement))
            if cursor.description:
                (row,) = cursor.fetchall()
                answers.append(row)
                if "register_worker(" in statement:
                    known["worker"] = row[0]
                elif "claim(" in statement:
                    known["job"], known["lease"] = row[:2]
    assert answers[1] == (True, [], False)
    assert answers[2][2] == "media.ratio"
    assert answers[3] == (True,)
    job = Job.objects.get()
    assert (job.status, job.result, job.duration) == ("done", 4, 0.3)


@in_shop
def test_the_wake_up_can_be_turned_off() -> None:
    with transaction.atomic(), connections["default"].cursor() as cursor:
        cursor.execute(statements("wake_off"))
        cursor.execute("SELECT _pgqueue_wake_once('default')")
        assert cursor.fetchone() == (False,)
