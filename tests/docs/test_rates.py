"""The examples about rate limits."""

from __future__ import annotations

from datetime import timedelta

from django.db import connections

from django_pgqueue import RateLimit, set_limit
from django_pgqueue.models import Job, Limit

from .shop import EXAMPLES, example, in_shop, work


@in_shop
def test_jobs_start_at_their_rate() -> None:
    shop = example("rates")
    shop.enqueue_some()
    work()
    jobs = Job.objects.order_by("pk")
    assert {job.limit_key for job in jobs} == {"crm/acme"}
    done = [job.pk for job in jobs if job.status == "done"]
    # The burst has started; and one more for each 0.6 seconds that this took.
    assert 10 <= len(done) <= 12
    assert done == [job.pk for job in jobs][: len(done)]
    crm = Limit.objects.get(name="crm")
    assert (crm.concurrency, crm.rate, crm.per, crm.burst) == (None, 100, timedelta(minutes=1), 10)
    labels = Limit.objects.get(name="shop.rates.print_label")
    assert (labels.concurrency, labels.rate, labels.burst) == (2, 30, 1)


@in_shop
def test_application_code_takes_starts() -> None:
    shop = example("rates")
    set_limit(name="crm", rate_limit=RateLimit(2, per=timedelta(hours=1), burst=2))
    assert [shop.search_crm("acme", "pens") for _ in range(2)] == ["Found pens."] * 2
    assert shop.search_crm("acme", "pens") in ("Try again in 1800 seconds.", "Try again in 1799 seconds.")
    assert shop.search_crm("other", "pens") == "Found pens."


@in_shop
def test_rates_are_changed() -> None:
    example("rates").change_rates()
    assert {name: (starts, burst) for name, starts, burst in Limit.objects.values_list(
        "name", "rate", "burst")} == {"queue:mail": (1000, 50), "*": (500, 100)}  # fmt: skip


@in_shop
def test_rates_in_sql() -> None:
    found = []
    with connections["default"].cursor() as cursor:
        for statement in (EXAMPLES / "sql" / "rates.sql").read_text().splitlines():
            cursor.execute(statement)
            found.append(cursor.fetchone()[0])
    assert found[1:] == [0.0, 0.0]
