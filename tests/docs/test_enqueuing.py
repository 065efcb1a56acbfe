"""The examples about enqueuing jobs: how, when, once, with what, and where."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, timedelta
from importlib import import_module
from io import StringIO
from threading import Barrier
from typing import Any

import django
import pytest
from django.conf import settings as project
from django.contrib import admin
from django.core.management import call_command
from django.db import connections, transaction
from django.test import RequestFactory, TestCase, override_settings
from django.utils import timezone
from pytest_django import DjangoDbBlocker

import django_pgqueue
from django_pgqueue import enqueue, enqueue_many
from django_pgqueue.checks.payloads import check_references
from django_pgqueue.management.commands import runqueueworker
from django_pgqueue.models import Job, Limit, Pause
from django_pgqueue.testing import run_jobs
from django_pgqueue.worker.options import WorkerOptions
from tests.support.commands import ROOT
from tests.support.databases import alias
from tests.support.factories import JobFactory
from tests.support.jobs import sql
from tests.support.workers import run_due

from .shop import (
    DOCS,
    EXAMPLES,
    ask,
    committed,
    example,
    fresh,
    in_shop,
    order,
    run,
    run_attempts,
    seconds_until,
    setting,
    statements,
    work,
)

pytestmark = in_shop


def test_the_example_of_the_readme() -> None:
    glance = example("glance")
    glance.place_order("ann@example.com")
    job = Job.objects.get()
    ordered = example("models").Order.objects.get()
    assert (run(job).status, job.args, job.timeout) == ("done", [ordered.pk], 300)


def test_enqueue_in_a_transaction() -> None:
    orders, shop_models = example("orders"), example("models")
    job = run(orders.place_order("ann@example.com", 42))
    assert (job.status, job.result, job.queue_name) == ("done", "ann@example.com", "mail")
    assert shop_models.Receipt.objects.get().text == "Total: 42"
    with transaction.atomic():
        orders.place_order("bob@example.com", 1)
        transaction.set_rollback(True)
    assert (Job.objects.count(), shop_models.Order.objects.count()) == (1, 1)
    emails = [f"{number}@example.com" for number in range(5)]
    jobs = example("bulk").import_orders(emails)
    work()
    assert [Job.objects.get(pk=pk).result for pk in jobs.ids] == emails


def test_arguments_that_the_task_does_not_take() -> None:
    send_receipt = example("tasks").send_receipt
    with pytest.raises(TypeError) as caught:
        enqueue(send_receipt)
    assert f"\n{caught.value}\n" in (DOCS / "howto" / "enqueue.md").read_text()
    with pytest.raises(TypeError, match=r"^item 3: "):
        enqueue_many(send_receipt.bind(*([1] if at < 3 else [])) for at in range(5))


@committed
def test_enqueue_in_async_code(rf: RequestFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    async_code, orders = example("async_code"), example("models").Order.objects
    assert run(asyncio.run(async_code.place_order("ann@example.com"))).status == "done"
    request = rf.post("/", {"email": "ann@example.com"})
    assert asyncio.run(async_code.checkout(request)).status_code == 201
    assert (orders.count(), Job.objects.count()) == (2, 2)
    monkeypatch.delattr(async_code, "send_receipt")
    with pytest.raises(NameError):
        asyncio.run(async_code.checkout(request))
    assert (orders.count(), Job.objects.count()) == (2, 2)


def test_options_of_one_call() -> None:
    options, ordered = example("options"), order()
    urgent, reminder = options.enqueue_urgently(ordered), options.remind(ordered)
    assert (urgent.priority, urgent.queue_name) == (50, "urgent")
    assert (reminder.priority, reminder.queue_name) == (-10, "mail")
    assert reminder.metadata == {"why": "reminder", "source": "shop"}
    assert seconds_until(reminder.run_after) == pytest.approx(86_400, abs=60)


def test_schedule_for_later() -> None:
    later, ordered = example("later"), order()
    soon = later.send_in_five_minutes(ordered)
    assert seconds_until(soon.run_after) == pytest.approx(300, abs=60)
    assert run(soon).status == "pending"
    year = timezone.now().year + 1
    assert later.send_on_new_year(ordered, year).run_after == datetime(year, 1, 1, 8, tzinfo=UTC)
    code = enqueue(later.send_code, ordered.pk)
    assert code.expires_at is not None
    assert code.expires_at - code.run_after == timedelta(hours=2)
    Job.objects.filter(pk=code.pk).update(expires_at=timezone.now() - timedelta(seconds=1))
    assert run(code).status == "cancelled"

    waiting = run(enqueue(later.wait_for_payment, ordered.pk))
    assert (waiting.status, waiting.attempts) == ("pending", 0)
    assert seconds_until(waiting.run_after) == pytest.approx(600, abs=60)
    type(ordered).objects.update(paid=True)
    assert run_attempts(waiting, 1).result == "paid"


@committed
def test_a_periodic_job_is_enqueued_once() -> None:
    """The unique constraint makes the second transaction wait for the first one, and find its row."""
    together, periodic = Barrier(2), example("periodic")

    def cron(day: date) -> bool:
        try:
            together.wait()
            return bool(periodic.enqueue_daily_report(day))
        finally:
            connections.close_all()

    with ThreadPoolExecutor(2) as machines:
        assert sorted(machines.map(cron, [date(2026, 11, 22)] * 2)) == [False, True]
    assert run(Job.objects.get()).status == "done"
    out = StringIO()
    for _ in range(2):
        call_command("enqueue_daily_report", stdout=out)
    assert out.getvalue() == "enqueued\nalready enqueued today\n"


# --- Unique jobs


def test_one_job_covers_all_changes_until_it_starts() -> None:
    unique, ordered = example("unique"), order(total=42)
    first = unique.order_changed(ordered)
    assert first.endswith(": created")
    assert unique.order_changed(ordered) == first.replace("created", "existing")
    assert unique.prices_changed([ordered, other := order(), other]) == 1
    batch = unique.index_all([ordered])  # the job that waits already joins the batch
    assert (batch.counts().added, batch.is_finished) == (1, False)
    work()
    assert batch.counts().done == 1
    assert Job.objects.earliest("pk").result == 42
    assert unique.order_changed(ordered).endswith(": created")
    page = (DOCS / "howto" / "unique.md").read_text()
    assert Job.objects.latest("pk").unique_key == f"shop.unique.index_order/{ordered.pk}"
    assert "f/1`" in page
    job = enqueue(unique.close_account, "ann@example.com")
    assert job.unique_key == "shop.unique.close_account/ann@example.com"
    assert "f/ann@example.com`" in page


def test_the_other_scopes_and_conflicts() -> None:
    unique, ordered = example("unique"), order()
    first = enqueue(unique.remind_customer, ordered.pk)
    work()
    assert enqueue(unique.remind_customer, ordered.pk).pk == first.pk
    soon, last = unique.debounced(ordered, "one"), unique.debounced(ordered, "two")
    assert (last.pk, last.enqueue_outcome, last.args) == (soon.pk, "replaced", [ordered.pk, "two"])
    assert seconds_until(last.run_after) == pytest.approx(300, abs=30)
    assert unique.ask_to_close("ann@example.com") == "it will be closed"
    assert unique.ask_to_close("Ann@Example.com").endswith("is about to close it already")
    rebuild = unique.rebuild("north")
    assert (rebuild.unique_key, rebuild.unique_scope) == ("rebuild", "live")
    assert unique.rebuild("south").pk == rebuild.pk
    assert ask(statements("unique")) == ask(statements("unique"))
    job = Job.objects.latest("pk")
    assert (job.unique_key, job.unique_scope) == ("receipt-1", "live")


# --- Databases, models and Django's tasks


@committed
def test_several_databases() -> None:
    databases = example("databases")
    assert run(enqueue(databases.count_events, "2026-11-21")).result == "2026-11-21"
    job = databases.enqueue_beside_other_rows(1)
    assert (job._state.db, fresh(job).status) == ("other", "pending")
    assert databases.failed_in_the_other_database() == 0
    assert django_pgqueue.cancel(f"other:{job.pk}") == 1

    job = enqueue(example("tasks").send_receipt, 1)
    read_only = alias("replica", OPTIONS={"options": "-c default_transaction_read_only=on"})
    router = example("routers").PrimaryAndReplica()
    with read_only, override_settings(DATABASE_ROUTERS=[router]):
        found = Job.objects.get(pk=job.pk)
        assert found._state.db == "replica"
        assert django_pgqueue.cancel(found) == 1
    assert fresh(job).status == "cancelled"


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


@pytest.mark.skipif(django.VERSION < (6, 0), reason="the page shows django.tasks of Django 6")
def test_django_tasks() -> None:
    with override_settings(TASKS=setting("tasks")["TASKS"]):
        module = example("django_tasks")
        public_id = module.greet_later("Ann")
        assert module.greeting(public_id) is None
        second = module.attempt_number.enqueue()
        work()
        assert module.greeting(public_id) == "Hello, Ann"
        second.refresh()
        assert second.return_value == 1


# --- Payloads: an app of their own, whose migrations make the triggers


@pytest.fixture(scope="module")
def invoices(shop: None, django_db_blocker: DjangoDbBlocker) -> Iterator[Any]:
    """The app `invoices`, by the names of its modules, with its migrations applied."""

    def module(name: str) -> Any:
        return import_module(f"invoices.{name}")

    sys.path.insert(0, str(EXAMPLES))
    with django_db_blocker.unblock(), override_settings(INSTALLED_APPS=[*project.INSTALLED_APPS, "invoices"]):
        call_command("migrate", "invoices", verbosity=0)
        call_command("makemigrations", "invoices", check=True, dry_run=True, verbosity=0)
        module("admin")  # as autodiscover imports it in a project
        yield module
        if admin.site.is_registered(module("models").Invoice):
            admin.site.unregister(module("models").Invoice)
        call_command("migrate", "invoices", "zero", verbosity=0)
        sql("DELETE FROM pgqueue_task WHERE model = 'invoices.Invoice'")
    sys.path.remove(str(EXAMPLES))


def test_payloads(invoices: Any) -> None:
    sending, looking = invoices("sending"), invoices("looking")
    ordered = sending.checkout("ann@example.com", 142)
    later = Job.objects.get(pk=sending.remind(ordered))
    assert (later.priority, later.run_after > later.enqueued_at) == (-10, True)
    other = invoices("models").Order.objects.create(email="bob@example.com", total=1)
    assert len(sending.send_all([other])) == 1
    assert ask(statements("payload")) == [(Job.objects.latest("pk").pk,)]
    assert {job.queue_name for job in Job.objects.all()} == {"mail"}
    run_jobs()
    assert sorted(invoices("tasks").SENT[-3:]) == [
        "ann@example.com: 142 (en)", "ann@example.com: 142 (fr)", "bob@example.com: 1 (en)",
    ]  # fmt: skip
    ordered = sending.checkout("ann@example.com", 142)
    assert looking.jobs_of(ordered).get().status == "pending"
    assert not looking.failed_for("ann@example.com").exists()
    ordered.email = "nowhere"
    ordered.save()
    with pytest.raises(ValueError, match="nowhere"):
        run_jobs()
    assert looking.jobs_of(ordered).get().status in {"retry", "failed"}
    assert invoices("admin").InvoiceAdmin.list_display == ("order", "language", "job_status", "job_link")


@pytest.mark.parametrize("name", ["test_an_order_sends_an_invoice", "test_the_text"])
def test_the_tests_of_a_project_with_payloads(invoices: Any, name: str) -> None:
    cases: type[TestCase] = invoices("tests").InvoiceTests
    getattr(cases(name), name)()


def test_jobs_are_found_by_an_indexed_argument() -> None:
    searching = example("searching")
    jobs = [enqueue(searching.pack_parcel, 17), enqueue(searching.pack_parcel, order_id=17, express=True)]
    enqueue(searching.pack_parcel, 18)
    assert {*searching.jobs_of_order(17)} == {*jobs}


# --- The example of a call that is handed over to another database


def test_a_call_goes_to_another_database_and_is_cancelled_there() -> None:
    relayed, ordered = example("relayed"), order()
    job = relayed.pay(ordered.pk)
    ordered.refresh_from_db()
    assert ordered.paid
    assert relayed.job_there(job) is None
    work()
    there = relayed.job_there(job)
    assert (there.database, there.args, there.status) == ("other", [ordered.pk], "pending")
    assert relayed.stop(job) == 1
    work()
    there.refresh_from_db()
    assert (there.status, fresh(job).status) == ("cancelled", "done")


# --- The examples of the page about shards, on two databases


@committed
def test_an_atomic_task_on_the_shard_of_its_rows() -> None:
    sharded, accounts = example("sharded"), example("models").Account.objects
    with override_settings(**setting("shards")):
        ann = accounts.using("other").create(name="Ann", balance=10)
        job = sharded.place_order(ann, 4)
        assert job.database == "other"
        run_due(alias="other")
    job.refresh_from_db()
    ann.refresh_from_db()
    assert (job.status, ann.balance, accounts.count()) == ("done", 6, 0)


@committed
def test_one_command_works_all_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    page = (ROOT / "docs/howto/shards.md").read_text()
    *_, arguments = re.findall(r"manage.py runqueueworker (.+)", page)
    found: list[WorkerOptions] = []
    monkeypatch.setattr(runqueueworker.Command, "_supervise", lambda self, shards, show: found.extend(shards))
    with override_settings(**setting("shards")):
        call_command("runqueueworker", *arguments.split(), skip_checks=True)
    assert {each.alias: each.processes for each in found} == {"default": 2, "other": 6}


@committed
def test_jobs_that_are_spread() -> None:
    spreading = example("spreading")
    with override_settings(**setting("shards")):
        spreading.end_of_month(["Ann", "Bob", "Cid", "Dan"], "2026-11")
        for shard in ("default", "other"):
            jobs = Job.objects.using(shard).filter(task_path="shop.spreading.invoice")
            assert all(spreading.where(job.args[0]) == shard for job in jobs)
            assert enqueue(spreading.resize, "a.png").database in ("default", "other")
    assert Job.objects.count() + Job.objects.using("other").count() == 6


@committed
def test_pauses_and_limits_on_all_shards() -> None:
    operations = example("all_shards")
    with override_settings(**setting("shards")):
        operations.slow_down()
        assert operations.hold_mail("The provider is down.") == {}
    for shard in ("default", "other"):
        assert Pause.objects.using(shard).get().reason == "The provider is down."
        assert Limit.objects.using(shard).get(pk="crm").rate == 5
