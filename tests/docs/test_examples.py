"""The examples of the how-to guides: they run, and do what their page says."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from threading import Thread
from typing import Any

import django
import pytest
from django.db import connections, transaction
from django.test import RequestFactory, override_settings
from django.utils import timezone

import django_pgqueue
from django_pgqueue import enqueue, enqueue_many
from django_pgqueue.checks.payloads import check_references
from django_pgqueue.models import Job, Queue, Worker
from tests.support.databases import alias
from tests.support.factories import JobFactory, WorkerFactory

from .shop import DOCS, example, fresh, in_shop, pause_of, run, run_attempts, seconds_until, setting, work


@in_shop
def test_enqueue_in_a_transaction() -> None:
    orders, shop_models = example("orders"), example("models")
    job = run(orders.place_order("ann@example.com", 42))
    assert (job.status, job.result, job.queue_name) == ("done", "ann@example.com", "mail")
    assert shop_models.Receipt.objects.get().text == "Total: 42"

    class Changed(Exception): ...

    before = Job.objects.count()
    with pytest.raises(Changed), transaction.atomic():  # noqa: PT012
        orders.place_order("bob@example.com", 1)
        raise Changed
    assert Job.objects.count() == before
    assert not shop_models.Order.objects.filter(email="bob@example.com").exists()


@in_shop
def test_enqueue_many() -> None:
    emails = [f"{number}@example.com" for number in range(5)]
    jobs = example("bulk").import_orders(emails)
    work()
    assert [Job.objects.get(pk=pk).result for pk in jobs.ids] == emails


@in_shop
def test_arguments_that_the_task_does_not_take() -> None:
    send_receipt = example("tasks").send_receipt
    with pytest.raises(TypeError) as caught:
        enqueue(send_receipt)
    assert f"\n{caught.value}\n" in (DOCS / "howto" / "enqueue.md").read_text()
    with pytest.raises(TypeError, match=r"^item 3: "):
        enqueue_many(send_receipt.bind(*([1] if at < 3 else [])) for at in range(5))


@in_shop
def test_enqueue_in_async_code() -> None:
    job = asyncio.run(example("async_code").place_order("ann@example.com"))
    assert run(job).status == "done"


@in_shop
def test_enqueue_in_an_async_view(rf: RequestFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    async_code, orders = example("async_code"), example("models").Order.objects
    request = rf.post("/", {"email": "ann@example.com"})
    assert asyncio.run(async_code.checkout(request)).status_code == 201
    assert (orders.count(), Job.objects.count()) == (1, 1)
    monkeypatch.delattr(async_code, "send_receipt")
    with pytest.raises(NameError):
        asyncio.run(async_code.checkout(request))
    assert (orders.count(), Job.objects.count()) == (1, 1)


@in_shop
def test_options_of_one_call() -> None:
    options, order = example("options"), example("models").Order.objects.create(email="ann@example.com")
    urgent = options.enqueue_urgently(order)
    assert (urgent.priority, urgent.queue_name) == (50, "urgent")
    reminder = options.remind(order)
    assert (reminder.priority, reminder.queue_name) == (-10, "mail")
    assert reminder.metadata == {"why": "reminder", "source": "shop"}
    assert seconds_until(reminder.run_after) == pytest.approx(86_400, abs=60)


@in_shop
def test_retries_by_exception_and_backoff() -> None:
    retrying, order = example("retrying"), example("models").Order.objects.create(email="ann@example.com")
    refused = run(enqueue(retrying.charge, order.pk))
    assert (refused.status, refused.attempts, len(refused.errors)) == ("failed", 1, 1)
    assert refused.errors[0]["class"] == "shop.retrying.Refused"

    network = run(enqueue(retrying.notify_warehouse, order.pk))
    assert (network.status, network.attempts) == ("retry", 1)
    network = run_attempts(network, 4)
    assert (network.status, network.attempts, len(network.errors)) == ("failed", 5, 5)


@in_shop
@pytest.mark.parametrize(
    ("question", "status", "wait"), [("busy", "retry", 30), ("bug", "failed", 0), ("other", "retry", 60)]
)
def test_a_backoff_that_is_a_function(question: str, status: str, wait: float) -> None:
    job = run(enqueue(example("retrying").ask_bank, question))
    assert job.status == status
    if wait:
        assert pause_of(job) == pytest.approx(wait, abs=wait * 0.25)


@in_shop
def test_a_task_that_steers_its_own_job() -> None:
    poll, order = (
        example("retrying").poll_delivery,
        example("models").Order.objects.create(email="a@example.com"),
    )
    later = run(enqueue(poll, order.pk, 503))
    assert (later.status, later.attempts) == ("retry", 1)
    assert pause_of(later) == pytest.approx(120, abs=1)
    gone = run(enqueue(poll, order.pk, 404))
    assert (gone.status, gone.waiting_reason) == ("cancelled", "the parcel is unknown")
    assert run(enqueue(poll, order.pk, 200)).status == "done"


@in_shop
def test_schedule_for_later() -> None:
    later, order = example("later"), example("models").Order.objects.create(email="ann@example.com")
    soon = later.send_in_five_minutes(order)
    assert seconds_until(soon.run_after) == pytest.approx(300, abs=60)
    assert run(soon).status == "pending"
    year = timezone.now().year + 1
    assert later.send_on_new_year(order, year).run_after == datetime(year, 1, 1, 8, tzinfo=UTC)
    code = enqueue(later.send_code, order.pk)
    assert code.expires_at is not None
    assert code.expires_at - code.run_after == timedelta(hours=2)

    waiting = run(enqueue(later.wait_for_payment, order.pk))
    assert (waiting.status, waiting.attempts) == ("pending", 0)
    assert seconds_until(waiting.run_after) == pytest.approx(600, abs=60)
    type(order).objects.update(paid=True)
    assert run_attempts(waiting, 1).result == "paid"


@in_shop
def test_a_job_that_comes_too_late() -> None:
    job = enqueue(example("later").send_code, 1)
    Job.objects.filter(pk=job.pk).update(expires_at=timezone.now())
    assert run(job).status == "cancelled"


@in_shop
def test_cancel_and_retry() -> None:
    control, order = example("control"), example("models").Order.objects.create(email="ann@example.com")
    tasks, charge = example("tasks"), example("retrying").charge
    one, other = enqueue(tasks.send_receipt, order.pk), enqueue(tasks.send_receipt, order.pk + 1)
    assert control.withdraw(order) == 1
    assert (fresh(one).status, fresh(other).status) == ("cancelled", "pending")
    assert control.withdraw_one(other)
    assert not control.withdraw_one(other)
    assert control.withdraw_several([one, enqueue(tasks.send_receipt, order.pk)]) == 1

    job = run(enqueue(charge, order.pk))
    assert job.status == "failed"
    type(order).objects.update(total=5)
    assert control.charge_again() == 1
    job = run(job)
    assert (job.status, job.attempts, len(job.errors)) == ("done", 2, 1)
    assert example("models").Order.objects.get().paid
    assert run(enqueue(control.export_orders)).status == "done"


@in_shop
def test_edit_waiting_jobs() -> None:
    editing, order = example("editing"), example("models").Order.objects.create(email="ann@example.com")
    receipt = example("tasks").send_receipt
    job, low = enqueue(receipt, order.pk), enqueue(receipt.using(priority=-5), order.pk + 1)
    assert editing.expedite(job)
    assert fresh(job).priority == 50
    assert editing.make_room() == 1
    assert (fresh(low).queue_name, fresh(job).queue_name) == ("slow", "mail")
    assert editing.postpone(order) == 1
    assert seconds_until(fresh(job).run_after) == pytest.approx(86_400, abs=60)


@in_shop
def test_pause_and_resume() -> None:
    pausing, receipt = example("pausing"), example("tasks").send_receipt
    order = example("models").Order.objects.create(email="ann@example.com")
    pausing.provider_is_down()
    job = run(enqueue(receipt, order.pk))
    assert job.status == "pending"
    assert pausing.provider_is_back()
    pausing.hold_the_task()
    job = run(job)
    assert (job.status, job.waiting_reason) == ("blocked", "paused: wrong amounts")
    assert django_pgqueue.resume(task=receipt)
    assert run(job).status == "done"


@in_shop
def test_drain_the_workers_of_a_host() -> None:
    WorkerFactory.create_batch(2, host="app-1")
    WorkerFactory.create(host="app-2")
    assert example("draining").leave_the_host("app-1") == 2
    assert set(Worker.objects.values_list("host", "drain")) == {("app-1", "stop"), ("app-2", "")}


@in_shop
def test_an_idempotency_key() -> None:
    idempotent = example("idempotent")
    idempotent.CHARGED.clear()  # other examples use the same bank
    job = run(enqueue(idempotent.charge_card, 5))
    assert job.retry(done=True)
    job = run(job)
    assert (job.status, job.attempts) == ("done", 2)
    assert [(f"shop-job-{job.pk}", 5)] == list(idempotent.CHARGED.items())


@in_shop
def test_what_must_not_run_twice(capsys: pytest.CaptureFixture[str]) -> None:
    job = run(enqueue(example("idempotent").send_newsletter, 3))
    assert (job.status, job.on_lost, job.max_attempts) == ("done", "fail", 1)
    assert "issue 3" in capsys.readouterr().out


@in_shop
def test_a_fenced_write_by_a_worker_that_has_lost_its_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first run is given up for dead while it calculates; the second one has written when it goes on."""
    fencing, account = example("fencing"), example("models").Account.objects.create(name="Turnover")
    example("models").Order.objects.create(email="ann@example.com", total=7)
    turnovers: list[int] = []
    raised: list[BaseException] = []
    fenced = fencing.fenced

    def turnover() -> Any:
        turnovers.append(len(turnovers) + 1)
        if len(turnovers) == 1:
            job = django_pgqueue.current_job()
            # As by recovery: it does not look like a job whose claim was lost, which its worker claims again.
            # A worker does not run a job twice at once, so it goes to a queue that only the second one reads.
            with transaction.atomic(), connections["default"].cursor() as cursor:
                cursor.execute("CALL pgqueue_finish(%s, %s, 'release')", [job.pk, job.lease])
                cursor.execute(
                    "UPDATE pgqueue_job_live SET attempts = 1, forgiven_attempts = 1, queue_name = 'second'"
                    " WHERE id = %s",
                    [job.pk],
                )
            second = Thread(target=work)
            second.start()
            second.join()
            return 1
        return real_turnover()

    @contextmanager
    def watched() -> Iterator[None]:
        try:
            with fenced():
                yield
        except fencing.LeaseLost as error:
            raised.append(error)
            raise

    real_turnover = fencing.turnover
    monkeypatch.setattr(fencing, "turnover", turnover)
    monkeypatch.setattr(fencing, "fenced", watched)
    job = enqueue(fencing.update_turnover, account.pk)
    work(queues=("default",))
    job.refresh_from_db()
    account.refresh_from_db()
    assert turnovers == [1, 2]
    assert account.balance == 7
    assert len(raised) == 1
    assert (job.status, job.attempts, job.errors) == ("done", 2, [])


@in_shop
def test_atomic_tasks(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    ledger, accounts = example("ledger"), example("models").Account.objects
    ann, bob = accounts.create(name="Ann", balance=10), accounts.create(name="Bob")
    assert run(enqueue(ledger.transfer, ann.pk, bob.pk, 4)).status == "done"
    assert list(accounts.order_by("pk").values_list("balance", flat=True)) == [6, 4]

    order = example("models").Order.objects.create(email="ann@example.com")
    settled = run(enqueue(ledger.settle, ann.pk, order.pk))
    assert settled.status == "done"
    assert accounts.get(pk=ann.pk).balance == 0
    assert capsys.readouterr().out == f"account settled: {ann.pk}\n"
    assert example("models").Receipt.objects.get().order == order

    # What follows fails: nothing of the body stays, and no job was enqueued.
    accounts.update(balance=7)
    monkeypatch.delattr(ledger, "enqueue")
    assert run(enqueue(ledger.settle, ann.pk, order.pk)).status == "retry"
    assert accounts.get(pk=ann.pk).balance == 7


@in_shop
def test_async_tasks() -> None:
    order = example("models").Order.objects.create(email="ann@example.com")
    job = enqueue(example("fetching").fetch_rates, order.pk)
    assert run(job).result == f"job {job.pk}"
    assert type(order).objects.get().paid
    assert run(enqueue(example("fetching").fetch_and_settle, order.pk)).result is False


@in_shop
def test_keep_by_queue() -> None:
    example("queues").set_up_queues()
    assert Queue.objects.get(name="mail").failed_retention == timedelta(days=90)
    order = example("models").Order.objects.create(email="ann@example.com")
    ids = enqueue_many([example("tasks").send_receipt.bind(pk) for pk in (order.pk, 0)]).ids
    work()
    kept = Job.objects.filter(pk__in=ids)
    assert [job.pk for job in kept] == [ids[1]]  # the one that failed waits for its next attempt
    assert example("models").Receipt.objects.count() == 1


@in_shop
def test_several_databases() -> None:
    databases = example("databases")
    events = enqueue(databases.count_events, "2026-11-21")
    assert run(events).result == "2026-11-21"
    job = databases.enqueue_beside_other_rows(1)
    assert (job._state.db, Job.objects.using("other").get(pk=job.pk).status) == ("other", "pending")
    assert databases.failed_in_the_other_database() == 0
    assert django_pgqueue.cancel(f"other:{job.pk}") == 1


@in_shop
def test_a_router_that_reads_from_a_replica() -> None:
    routers, tasks = example("routers"), example("tasks")
    job = enqueue(tasks.send_receipt, 1)
    read_only = alias("replica", OPTIONS={"options": "-c default_transaction_read_only=on"})
    with read_only, override_settings(DATABASE_ROUTERS=[routers.PrimaryAndReplica()]):
        found = Job.objects.get(pk=job.pk)
        assert found._state.db == "replica"
        assert django_pgqueue.cancel(found) == 1
    assert fresh(job).status == "cancelled"


@in_shop
def test_a_model_that_refers_to_a_job() -> None:
    exports, export_model = example("exports"), example("models").Export
    export = exports.start_export("orders")
    assert [each.pk for each in export.job.exports.all()] == [export.pk]
    assert exports.status_of(export) == "pending"
    run(export.job)
    export.refresh_from_db()
    assert (exports.status_of(export), export.outcome) == ("done", "written")
    failed = export_model.objects.create(job=JobFactory.create(failed=True), name="old")
    assert list(exports.failed_exports()) == [failed]
    assert exports.forget_old_jobs() == 0
    Job.objects.filter(pk=export.job_id)._raw_delete("default")
    export.refresh_from_db()
    assert exports.status_of(export) == "written"
    with pytest.raises(Job.DoesNotExist):
        _ = export.job
    listed = export_model.objects.select_related("job").order_by("pk")
    assert [each.pk for each in listed] == [export.pk, failed.pk]
    assert exports.forget_old_jobs() == 1
    assert check_references(None) == []


@in_shop
def test_current_job() -> None:
    report = example("context").report
    job = enqueue(report.using(metadata={"why": "audit"}))
    assert run(job).result == {"id": job.pk, "attempt": 1, "queue": "default", "why": "audit"}


@in_shop
def test_job_context() -> None:
    export = example("job_context").export_orders
    job = enqueue(export, 2026)
    assert run(job).result == f"2026, job {job.pk}"


@in_shop
@pytest.mark.skipif(django.VERSION < (6, 0), reason="the page shows django.tasks of Django 6")
def test_django_tasks() -> None:
    with override_settings(TASKS=setting("tasks")["TASKS"]):
        module = example("django_tasks")
        public_id = module.greet_later("Ann")
        assert module.greeting(public_id) is None
        work()
        assert module.greeting(public_id) == "Hello, Ann"
        second = module.attempt_number.enqueue()
        work()
        second.refresh()
        assert second.return_value == 1
