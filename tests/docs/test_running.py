"""The examples about what happens while a job runs."""

from __future__ import annotations

import asyncio
import json
import logging
import logging.config
from datetime import date
from pathlib import Path
from threading import Event
from time import monotonic
from typing import Any

import pytest
from django.contrib.admin import AdminSite
from django.contrib.auth import get_user_model
from django.core.checks import run_checks
from django.db import transaction
from django.test import RequestFactory
from django.utils import timezone, translation
from opentelemetry import trace
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import django_pgqueue
from django_pgqueue import enqueue
from django_pgqueue.exceptions import JobFinished
from django_pgqueue.models import Job, JobProgress
from django_pgqueue.tasks.progress import Progress
from django_pgqueue.testing import call_task, reported_progress
from tests.support.factories import JobFactory
from tests.support.jobs import sql
from tests.support.waiting import DEADLINE, run as run_async
from tests.support.workers import working as worker

from .shop import (
    ask,
    committed,
    example,
    fresh,
    in_shop,
    order,
    pause_of,
    produce,
    run,
    run_attempts,
    seconds_until,
    setting,
    statements,
    work,
    working,
)

pytestmark = in_shop

# --- Retries and results


def test_retries_by_exception_and_backoff() -> None:
    retrying = example("retrying")
    refused = run(enqueue(retrying.charge, order().pk))
    assert (refused.status, refused.attempts, len(refused.errors)) == ("failed", 1, 1)
    assert refused.errors[0]["class"] == "shop.retrying.Refused"
    network = run_attempts(enqueue(retrying.notify_warehouse, 1), 5)
    assert (network.status, network.attempts, len(network.errors)) == ("failed", 5, 5)


@pytest.mark.parametrize(
    ("question", "status", "wait"), [("busy", "retry", 30), ("bug", "failed", 0), ("other", "retry", 60)]
)
def test_a_backoff_that_is_a_function(question: str, status: str, wait: float) -> None:
    job = run(enqueue(example("retrying").ask_bank, question))
    assert job.status == status
    assert status == "failed" or pause_of(job) == pytest.approx(wait, abs=wait * 0.25)


def test_a_task_that_steers_its_own_job(monkeypatch: pytest.MonkeyPatch) -> None:
    poll, ordered = example("retrying").poll_delivery, order()
    later = run(enqueue(poll, ordered.pk, 503))
    assert (later.status, later.attempts) == ("retry", 1)
    assert pause_of(later) == pytest.approx(120, abs=1)
    gone = run(enqueue(poll, ordered.pk, 404))
    assert (gone.status, gone.waiting_reason) == ("cancelled", "the parcel is unknown")
    assert run(enqueue(poll, ordered.pk, 200)).status == "done"

    limits = example("limits")
    monkeypatch.setattr(limits, "SENT", [])
    first, second = (run(enqueue(limits.sync_order, number)) for number in (1, 2))
    assert (first.status, second.status, second.attempts, limits.SENT) == ("done", "pending", 0, [1])
    assert seconds_until(second.run_after) == pytest.approx(60, abs=10)


@committed
def test_wait_for_a_result() -> None:
    waiting, ordered = example("waiting"), order()
    assert waiting.address_of(ordered.pk, 0.0) is None
    with worker():
        assert waiting.address_of(ordered.pk, 20.0) == "ann@example.com"
        assert run_async(waiting.addresses_of([ordered.pk])) == ["ann@example.com"]


def test_the_current_job() -> None:
    job = run(enqueue(example("context").report.using(metadata={"why": "audit"})))
    assert job.result == {"id": job.pk, "attempt": 1, "queue": "default", "why": "audit"}
    job = run(enqueue(example("job_context").export_orders, 2026))
    assert job.result == f"2026, job {job.pk}"


@committed
def test_async_tasks() -> None:
    ordered = order()
    job = enqueue(example("fetching").fetch_rates, ordered.pk)
    assert run(job).result == f"job {job.pk}"
    assert type(ordered).objects.get().paid
    assert run(enqueue(example("fetching").fetch_and_settle, ordered.pk)).result is False


# --- Once only


def test_an_idempotency_key(capsys: pytest.CaptureFixture[str]) -> None:
    idempotent = example("idempotent")
    idempotent.CHARGED.clear()  # other examples use the same bank
    job = run(enqueue(idempotent.charge_card, 5))
    assert job.retry(done=True)
    job = run(job)
    assert (job.status, job.attempts) == ("done", 2)
    assert [(f"shop-job-{job.pk}", 5)] == list(idempotent.CHARGED.items())
    job = run(enqueue(idempotent.send_newsletter, 3))
    assert (job.status, job.on_lost, job.max_attempts) == ("done", "fail", 1)
    assert "issue 3" in capsys.readouterr().out


@committed
def test_a_fenced_write_by_a_worker_that_has_lost_its_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first run is given up for dead while it calculates; the second one has written when it goes on."""
    fencing, account = example("fencing"), example("models").Account.objects.create(name="Turnover")
    order(total=7)
    turnovers: list[int] = []
    real_turnover = fencing.turnover

    def turnover() -> Any:
        turnovers.append(len(turnovers) + 1)
        if len(turnovers) > 1:
            return real_turnover()
        job = django_pgqueue.current_job()
        # As by recovery: it does not look like a job whose claim was lost, which its worker claims again.
        # A worker does not run a job twice at once, so it goes to a queue that only the second one reads.
        with transaction.atomic():
            sql("CALL pgqueue_finish(%s, %s, 'release')", job.pk, job.lease)
            sql("UPDATE pgqueue_job_live SET attempts = 1, forgiven_attempts = 1, queue_name = 'second'"
                " WHERE id = %s", job.pk)  # fmt: skip
        with working():
            return 1

    monkeypatch.setattr(fencing, "turnover", turnover)
    job = enqueue(fencing.update_turnover, account.pk)
    produce(queues=("default",))
    job.refresh_from_db()
    account.refresh_from_db()
    assert (turnovers, account.balance) == ([1, 2], 7)
    assert (job.status, job.attempts, job.errors) == ("done", 2, [])


@committed
def test_atomic_tasks(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    ledger, accounts = example("ledger"), example("models").Account.objects
    ann, bob = accounts.create(name="Ann", balance=10), accounts.create(name="Bob")
    assert run(enqueue(ledger.transfer, ann.pk, bob.pk, 4)).status == "done"
    assert list(accounts.order_by("pk").values_list("balance", flat=True)) == [6, 4]
    ordered = order()
    assert run(enqueue(ledger.settle, ann.pk, ordered.pk)).status == "done"
    work()
    assert accounts.get(pk=ann.pk).balance == 0
    assert capsys.readouterr().out == f"account settled: {ann.pk}\n"
    assert example("models").Receipt.objects.get().order == ordered
    # What follows fails: nothing of the body stays, and no job was enqueued.
    accounts.update(balance=7)
    monkeypatch.delattr(ledger, "enqueue")
    assert run(enqueue(ledger.settle, ann.pk, ordered.pk)).status == "retry"
    assert accounts.get(pk=ann.pk).balance == 7


# --- Timeouts and stopping


@committed
def test_tasks_are_asked_to_stop(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    control, began, real_sleep = example("control"), Event(), asyncio.sleep

    async def sleep(seconds: float) -> None:
        began.set()
        await real_sleep(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    sync, by_event_loop = enqueue(control.watch, 60), enqueue(example("fetching").listen, 60)
    with working():
        deadline = monotonic() + DEADLINE
        while fresh(sync).status == "pending":
            assert monotonic() < deadline
        assert began.wait(DEADLINE)
        assert control.withdraw_one(sync)
        assert control.withdraw_one(by_event_loop)
    ended = fresh(sync)
    assert ended.cancel_requested_at is not None
    assert (ended.status, ended.result) == ("done", "stopped")
    assert fresh(by_event_loop).status == "cancelled"
    assert "asked to stop" in capsys.readouterr().out


@committed
def test_tasks_clean_up_at_their_timeout_and_may_extend_it(tmp_path: Path) -> None:
    """All at once. Eight pages take 2.4 s, the timeout is 2 s: without the extension it would end there."""
    timeouts, folders = example("timeouts"), [tmp_path / name for name in ("sync", "async", "quick")]
    for folder in folders:
        folder.mkdir()
    too_long = [
        enqueue(timeouts.export_catalog, str(folders[0]), 100_000),
        enqueue(timeouts.follow_parcel, str(folders[1]), "parcel"),
    ]
    others = [
        enqueue(timeouts.import_pages, 8),
        enqueue(timeouts.export_catalog, str(folders[2]), 3),
        enqueue(timeouts.render_invoice, 5),
    ]
    produce()
    for job in map(fresh, too_long):
        assert (job.status, job.attempts) == ("failed", 1)
        assert job.errors[0]["class"] == "django_pgqueue.exceptions.TaskTimeout"
    assert [fresh(job).result for job in others] == [8, 3, "invoice 5"]
    assert [path.name for folder in folders for path in folder.iterdir()] == ["catalog"]


def test_an_operator_extends_a_timeout(tmp_path: Path) -> None:
    timeouts = example("timeouts")
    job = enqueue(timeouts.render_invoice, 1)
    assert not timeouts.give_an_hour(job)  # it does not run yet
    Job.objects.filter(pk=job.pk).update(status="running", lease=77, worker=5, deadline=timezone.now())
    assert timeouts.give_an_hour(job)
    assert seconds_until(fresh(job).deadline) == pytest.approx(3600, abs=60)
    statement = statements("extend").replace("[1]", f"[{job.pk}]").replace("1 hour", "2 hours")
    assert ask(statement) == [([job.pk],)]
    assert seconds_until(fresh(job).deadline) == pytest.approx(7200, abs=60)
    page = tmp_path / "page"
    page.write_bytes(b"all there")
    assert timeouts.ask_warehouse.call(page.as_uri()) == b"all there"


# --- Steps and progress


@committed
def test_an_order_is_fulfilled_once() -> None:
    steps = example("steps")
    account = example("models").Account.objects.create(name="ann", balance=100)
    ordered = order(total=42)
    job = run(enqueue(steps.fulfill, ordered.pk, account.pk))
    assert job.waiting_reason == "sleeps: settle"
    done = run_attempts(job, 1)
    assert (done.status, done.result) == ("done", f"parcel {len(steps.SHIPPED)}")
    assert steps.SHIPPED.count(ordered.pk) == 1
    account.refresh_from_db()
    assert account.balance == 58
    assert [entry["name"] for entry in done.steps or []] == ["render", "charge", "ship", "settle"]
    done = run(enqueue(steps.import_pages, 2))
    assert done.result == 6
    assert [entry["name"] for entry in done.steps or []] == ["fetch-0", "store-0", "fetch-1", "store-1"]
    assert example("models").Order.objects.count() == 7


def test_a_refund_waits_for_a_decision() -> None:
    steps = example("steps")
    job, by_sql = enqueue(steps.refund, 1), enqueue(steps.refund, 1)
    assert run(job).waiting_reason == "waits for the event decided"
    assert steps.decide(job.pk, "ann", "yes") is True
    assert steps.decide(job.pk, "bob", "no") is False
    assert run(job).result == "ann says yes"
    with pytest.raises(JobFinished), transaction.atomic():
        steps.decide(job.pk, "bob", "no")
    assert ask(statements("send_event").replace("57", str(by_sql.pk))) == [(True,)]
    assert run(by_sql).result == "ann says yes"


def test_progress_is_reported(rf: RequestFactory) -> None:
    progress, orders = example("progress"), [order(email=f"{n}@example.com", total=n) for n in range(3)]
    report = example("models").DailyReport.objects.create(day=date(2026, 11, 23))
    with reported_progress() as reported:
        assert call_task(progress.write_report, report.pk) == 3
        report.refresh_from_db()
        assert report.text == "3 in all"
        assert (reported[0], reported[-1]) == (Progress(1, 3, "0@example.com"), Progress(3, 3, "saving"))
        assert call_task(progress.remind) == call_task(progress.fetch) == 3
    assert (2, 3, f"order {orders[2].pk}") in reported
    assert reported[-1] == Progress(3, 3, "")

    def read(job: Job) -> Any:
        return json.loads(example("progress_view").report_progress(rf.get("/"), job.pk).content)

    job = enqueue(progress.remind)
    assert read(job) == {"status": "pending", "fraction": None, "note": ""}
    Job.objects.filter(pk=job.pk).update(marks=8)
    JobProgress.objects.create(job=job, done=1, total=4, note="here")
    assert read(job) == {"status": "pending", "fraction": 0.25, "note": "here"}
    assert list(Job.objects.filter(live_progress__note="here")) == [job]
    statement = statements("progress").replace("57", str(job.pk))
    assert ask(statement) == [(False,)]  # it does not run
    Job.objects.filter(pk=job.pk).update(status="running", lease=1)
    assert ask(statement) == [(True,)]
    assert fresh(job).progress == (40, 100, "reading")


# --- Context and hooks


@committed
def test_a_job_knows_who_enqueued_it(settings: Any) -> None:
    settings.PGQUEUE = setting("context")["PGQUEUE"]
    found = {message.id for message in run_checks(tags=["pgqueue"])}
    assert found.isdisjoint({"pgqueue.E002", "pgqueue.E003", "pgqueue.E018"})
    logger = logging.getLogger("shop.carrying")
    logger.setLevel(logging.INFO)
    user = get_user_model().objects.create_user("ada")
    with translation.override("de"):
        pk = example("carrying").export_for(user, "acme")
    produce()
    logger.setLevel(logging.NOTSET)
    job = fresh(Job(pk=pk))
    assert job.result == "Willkommen, ada (acme)"
    tenant = {"shop.carrying.current_tenant": "acme"}
    assert job.context == {"language": "de", "user": user.pk, "vars": tenant}
    ((line,),) = [[line["message"] for line in entry["lines"]] for entry in job.logs or []]
    assert line == "exporting the orders of acme"
    # The id of the job is in the result of each of the three statements.
    ((pk, _),) = ask(statements("context"))
    assert Job.objects.get(pk=pk).user_id == 5


@committed
def test_jobs_have_tenants() -> None:
    shop = example("accounts")
    first = shop.import_for("acme")
    others = shop.rebuild_all(["acme", "bolt", "bolt"])
    assert others[1] == others[2], "one waits for each tenant"
    produce()
    assert {job.tenant for job in Job.objects.all()} == {"acme", "bolt"}
    assert fresh(first).status == "done"
    assert [fresh(Job(pk=pk)).result for pk in others[:2]] == ["the catalog of acme", "the catalog of bolt"]
    assert shop.count_failed("acme") == 0


def test_staff_of_one_tenant() -> None:
    admin = example("tenant_admin").TenantJobAdmin(Job, AdminSite())
    jobs = {name: JobFactory.create(tenant=name) for name in ("acme", "bolt")}
    request = RequestFactory().get("/")
    users = get_user_model().objects
    request.user = users.create(username="acme", is_staff=True)
    assert [*admin.get_queryset(request)] == [jobs["acme"]]
    request.user = users.create(username="root", is_superuser=True)
    assert {*admin.get_queryset(request)} == {*jobs.values()}


def test_the_example_of_opentelemetry(monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[Any] = []
    monkeypatch.setattr(trace, "set_tracer_provider", used.append)
    exporter = InMemorySpanExporter()
    provider = example("telemetry").set_up(exporter)
    assert used == [provider]
    with provider.get_tracer("shop").start_as_current_span("request"):
        pass
    provider.shutdown()
    assert [span.name for span in exporter.get_finished_spans()] == ["request"]


def test_each_attempt_works_for_the_tenant_of_its_job(settings: Any) -> None:
    settings.PGQUEUE = setting("hooks")["PGQUEUE"]
    hooks = example("hooks")
    job, gone = Job(pk=hooks.count_for("acme")), Job(pk=hooks.count_for("globex"))
    of_nobody = enqueue(hooks.count_orders)
    work()
    assert fresh(job).result == "the orders of acme"
    assert (fresh(gone).status, fresh(of_nobody).metadata) == ("cancelled", {})
    assert hooks.tenant.get() == ""
    assert "pgqueue.E024" not in {message.id for message in run_checks(tags=["pgqueue"])}
