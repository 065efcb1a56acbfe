"""The examples about changing jobs, and about what lets them start: pauses, limits, groups and schedules."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test import override_settings

import django_pgqueue
from django_pgqueue import RateLimit, conf, enqueue, enqueue_many, set_limit
from django_pgqueue.checks.tasks import check_schedules
from django_pgqueue.maintenance.schedules import synchronize
from django_pgqueue.models import Job, Limit, Queue, Schedule, ScheduleRun, Worker
from django_pgqueue.schedules import declare
from django_pgqueue.schedules.fire import fire_due
from django_pgqueue.worker.inline import BorrowedSession
from tests.support.factories import WorkerFactory

from .shop import (
    EXAMPLES,
    ask,
    committed,
    example,
    fresh,
    in_shop,
    order,
    produce,
    run,
    seconds_until,
    setting,
    statements,
    work,
)

pytestmark = in_shop


def test_cancel_and_retry() -> None:
    control, tasks, ordered = example("control"), example("tasks"), order()
    one, other = enqueue(tasks.send_receipt, ordered.pk), enqueue(tasks.send_receipt, ordered.pk + 1)
    assert control.withdraw(ordered) == 1
    assert (fresh(one).status, fresh(other).status) == ("cancelled", "pending")
    assert control.withdraw_one(other)
    assert not control.withdraw_one(other)
    assert control.withdraw_several([one, enqueue(tasks.send_receipt, ordered.pk)]) == 1
    job = run(enqueue(example("retrying").charge, ordered.pk))
    assert job.status == "failed"
    type(ordered).objects.update(total=5)
    assert control.charge_again() == 1
    job = run(job)
    assert (job.status, job.attempts, len(job.errors)) == ("done", 2, 1)
    assert type(ordered).objects.get().paid
    assert run(enqueue(control.export_orders)).status == "done"


def test_edit_waiting_jobs() -> None:
    editing, ordered, receipt = example("editing"), order(), example("tasks").send_receipt
    job, low = enqueue(receipt, ordered.pk), enqueue(receipt.using(priority=-5), ordered.pk + 1)
    assert editing.expedite(job)
    assert fresh(job).priority == 50
    assert editing.make_room() == 1
    assert (fresh(low).queue_name, fresh(job).queue_name) == ("slow", "mail")
    assert editing.postpone(ordered) == 1
    assert seconds_until(fresh(job).run_after) == pytest.approx(86_400, abs=60)


def test_pause_and_resume() -> None:
    pausing, receipt = example("pausing"), example("tasks").send_receipt
    pausing.provider_is_down()
    job = run(enqueue(receipt, order().pk))
    assert job.status == "pending"
    assert pausing.provider_is_back()
    pausing.hold_the_task()
    job = run(job)
    assert (job.status, job.waiting_reason) == ("blocked", "paused: wrong amounts")
    assert django_pgqueue.resume(task=receipt)
    assert run(job).status == "done"


def test_drain_the_workers_of_a_host() -> None:
    WorkerFactory.create_batch(2, host="app-1")
    WorkerFactory.create(host="app-2")
    assert example("draining").leave_the_host("app-1") == 2
    assert set(Worker.objects.values_list("host", "drain")) == {("app-1", "stop"), ("app-2", "")}


@committed
def test_keep_by_queue() -> None:
    example("queues").set_up_queues()
    assert Queue.objects.get(name="mail").failed_retention == timedelta(days=90)
    done, failed = enqueue_many([example("tasks").send_receipt.bind(pk) for pk in (order().pk, 0)]).ids
    produce()
    assert [job.pk for job in Job.objects.filter(pk__in=(done, failed))] == [failed]
    assert example("models").Receipt.objects.count() == 1


# --- Limits, rates and groups


@committed
def test_limits_of_tasks_and_keys() -> None:
    shop = example("concurrency")
    shop.SHIPPED.clear()
    shop.enqueue_some(5)
    keys = list(Job.objects.order_by("pk").values_list("limit_key", flat=True))
    assert keys == ["shop.concurrency.ship/5"] * 3 + ["shop.concurrency.make_thumbnails/big images"]
    jobs = [
        enqueue(shop.fetch_customer, "ann@example.com"),
        enqueue(shop.update_customer, "bob@example.com", page=2),
    ]
    assert {job.limit_key for job in jobs} == {"crm-requests/example.com"}
    produce()
    assert shop.SHIPPED == [1, 2, 3]
    assert fresh(jobs[0]).status == "done"
    crm = Limit.objects.get(name="crm-requests")
    assert (crm.concurrency, crm.declared_concurrency) == (3, 3)
    Limit.objects.all().delete()
    shop.change_limits()
    assert dict(Limit.objects.values_list("name", "concurrency")) == {
        "shop.concurrency.make_thumbnails": 8, "queue:mail": 20, "*": 100,
    }  # fmt: skip


def test_limits_in_sql() -> None:
    example("concurrency")
    ask(statements("limits"))
    job = Job.objects.get()
    why = (EXAMPLES / "sql" / "why" / "blocked.sql").read_text().replace("(1)", f"({job.pk})")
    assert ask(why) == [("shop.concurrency.ship", "shop.concurrency.ship/5", False, 2, 0, 0, [])]
    assert run(job).status == "done"


@committed
def test_jobs_start_at_their_rate() -> None:
    shop = example("rates")
    shop.enqueue_some()
    produce()
    jobs = list(Job.objects.order_by("pk"))
    done = [job.pk for job in jobs if job.status == "done"]
    # The burst has started; and one more for each 0.6 seconds that this took.
    assert 10 <= len(done) <= 12
    assert done == [job.pk for job in jobs][: len(done)]
    crm, labels = (Limit.objects.get(name=name) for name in ("crm", "shop.rates.print_label"))
    assert (crm.concurrency, crm.rate, crm.per, crm.burst) == (None, 100, timedelta(minutes=1), 10)
    assert (labels.concurrency, labels.rate, labels.burst) == (2, 30, 1)


def test_application_code_takes_starts_and_changes_rates() -> None:
    shop = example("rates")
    found = [ask(statement)[0][0] for statement in statements("rates").splitlines()]
    assert found[1:] == [0.0, 0.0]
    set_limit(name="crm", rate_limit=RateLimit(2, per=timedelta(hours=1), burst=2))
    assert [shop.search_crm("globex", "pens") for _ in range(2)] == ["Found pens."] * 2
    assert shop.search_crm("globex", "pens") in ("Try again in 1800 seconds.", "Try again in 1799 seconds.")
    assert shop.search_crm("other", "pens") == "Found pens."
    Limit.objects.all().delete()
    shop.change_rates()
    assert {name: rest for name, *rest in Limit.objects.values_list("name", "rate", "burst")} == {
        "queue:mail": [1000, 50], "*": [500, 100],
    }  # fmt: skip


@committed
def test_tenants_take_turns() -> None:
    shop = example("tenants")
    shop.RENDERED.clear()
    shop.enqueue_some()
    assert set(Job.objects.values_list("group_key", flat=True)) == {"acme", "tiny shop", "vip"}
    produce()
    assert len(shop.RENDERED) == 501
    assert shop.RENDERED.index(("tiny shop", 1)) < 200
    assert [row[:2] for row in ask(statements("groups"))] == [("acme", 1)]
    with override_settings(PGQUEUE=setting("fairness")["PGQUEUE"]):
        assert conf.problems() == []
        assert (conf.current().group_weights, conf.current().aging) == ({"acme": 5}, 600.0)


# --- Schedules


@pytest.fixture
def schedules(shop: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The module, and no other declarations; a second test in this process finds it imported already."""
    module = example("schedules")
    of_the_shop = {
        name: each for name, each in declare._declared.items() if each[1].declared_by == module.__name__
    }
    monkeypatch.setattr(declare, "_declared", of_the_shop)
    yield module
    # A worker that a later test starts must not find them.
    monkeypatch.setattr(declare, "_declared", {})


def test_the_schedules_are_written_fire_and_run(schedules: Any) -> None:
    synchronize("default")
    hourly = "shop.schedules.rebuild_search_index"
    assert {row.name for row in Schedule.objects.all()} == {
        "shop.schedules.build_daily_report", "shop.schedules.sync_stock", "summary-of-the-week",
        "summary-of-the-month", hourly,
    }  # fmt: skip
    waiting = enqueue(schedules.rebuild_search_index)  # its run meets this job of a view
    due = datetime.now(UTC) - timedelta(seconds=1)
    Schedule.objects.update(next_run_at=due, since=due - timedelta(days=1), jitter=timedelta(0))
    assert fire_due(BorrowedSession("default").rows, {}) == 5
    work()
    assert {job.status for job in Job.objects.all()} == {"done"}
    assert Job.objects.count() == 5
    run = ScheduleRun.objects.get(schedule=hourly)
    assert (run.outcome, run.job_id) == ("existing", waiting.pk)
    assert example("models").DailyReport.objects.get().text == "0 orders"
    results = {job.metadata["schedule"]: job.result for job in Job.objects.exclude(metadata={})}
    assert results["summary-of-the-week"] == "the summary of the week"


def test_pause_and_resume_a_schedule(schedules: Any) -> None:
    synchronize("default")
    schedules.stop_for_the_audit()
    row = Schedule.objects.get(pk="summary-of-the-month")
    assert (row.pause_author, row.pause_reason) == ("kim", "the books are being audited")
    schedules.go_on()
    row.refresh_from_db()
    assert row.is_active
    assert Job.objects.get().metadata["schedule"] == "summary-of-the-month"
    with override_settings(**setting("schedules")):
        assert check_schedules(None) == []
        synchronize("default")
    assert Schedule.objects.get(pk="stock").every == timedelta(minutes=10)
    work()
