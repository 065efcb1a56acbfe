"""The examples about limits."""

from __future__ import annotations

from django.db import connections

from django_pgqueue import enqueue
from django_pgqueue.models import Job, Limit

from .shop import EXAMPLES, example, in_shop, run, statements, work


@in_shop
def test_limits_of_tasks_and_keys() -> None:
    shop = example("concurrency")
    shop.SHIPPED.clear()
    shop.enqueue_some(5)
    keys = list(Job.objects.order_by("pk").values_list("limit_key", flat=True))
    assert keys == ["shop.concurrency.ship/5"] * 3 + ["shop.concurrency.make_thumbnails/big images"]
    work()
    assert shop.SHIPPED == [1, 2, 3]
    jobs = [
        enqueue(shop.fetch_customer, "ann@example.com"),
        enqueue(shop.update_customer, "bob@example.com", page=2),
    ]
    assert {job.limit_key for job in jobs} == {"crm-requests/example.com"}
    assert run(jobs[0]).status == "done"
    crm = Limit.objects.get(name="crm-requests")
    assert (crm.concurrency, crm.declared_concurrency) == (3, 3)


@in_shop
def test_limits_are_changed() -> None:
    example("concurrency").change_limits()
    assert dict(Limit.objects.values_list("name", "concurrency")) == {
        "shop.concurrency.make_thumbnails": 8, "queue:mail": 20, "*": 100,
    }  # fmt: skip


@in_shop
def test_limits_in_sql() -> None:
    with connections["default"].cursor() as cursor:
        cursor.execute(statements("limits"))
        job = Job.objects.get()
        assert job.limit_key == "shop.concurrency.ship/5"
        query = (EXAMPLES / "sql" / "why" / "blocked.sql").read_text().replace("(1)", f"({job.pk})")
        cursor.execute(query)
        assert cursor.fetchall() == [("shop.concurrency.ship", job.limit_key, False, 2, 0, 0, [])]
    assert run(job).status == "done"
