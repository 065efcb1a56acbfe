"""The documentation: its examples run, its tables say what the code says.

The examples are the files below `docs/examples/`, which the pages include: a project `mysite` with an app
`shop`, settings, SQL. Here the app is installed for the time of this module, and a worker runs its jobs in
this process; the quickstart runs as commands, on a database of its own.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import re
import runpy
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from importlib import import_module
from pathlib import Path
from threading import Event, Thread
from time import monotonic
from typing import Any
from uuid import uuid4

import django
import environ
import psycopg
import pytest
from asgiref.sync import sync_to_async
from django.apps import apps
from django.conf import settings
from django.core.checks import run_checks
from django.core.management import load_command_class
from django.db import IntegrityError, connections, models, transaction
from django.test import override_settings
from django.utils import timezone
from pytest_django import DjangoDbBlocker

import django_pgqueue
from django_pgqueue import conf, enqueue, enqueue_many
from django_pgqueue.lifecycle.control import run_now
from django_pgqueue.models import Job, Queue, QueueStatus
from django_pgqueue.worker.options import Assignment, WorkerOptions, new_id
from django_pgqueue.worker.process import build_producer

DOCS = Path(__file__).resolve().parents[2] / "docs"
EXAMPLES = DOCS / "examples"
DEADLINE = 20.0  # seconds
PAGES = sorted(path for path in DOCS.rglob("*.md") if "_build" not in path.parts)


# -- the shop


@pytest.fixture(scope="module")
def shop(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    """The app `shop`, importable under that name, with its tables in both databases."""
    sys.path.insert(0, str(EXAMPLES))
    with override_settings(INSTALLED_APPS=[*settings.INSTALLED_APPS, "shop"]), django_db_blocker.unblock():
        tables = list(apps.get_app_config("shop").get_models())
        for alias in ("default", "other"):
            with connections[alias].schema_editor() as editor:
                for table in tables:
                    editor.create_model(table)
        yield
        asyncio.run(sync_to_async(connections.close_all)())  # those of the thread that async code shares
        for alias in ("default", "other"):
            with connections[alias].schema_editor() as editor:
                for table in tables:
                    editor.delete_model(table)
            connections[alias].close()
    sys.path.remove(str(EXAMPLES))


def example(name: str) -> Any:
    """A module of the shop."""
    return import_module(f"shop.{name}")


def work(alias: str = "default", **options: Any) -> None:
    """Run a worker process's producer in this process until nothing is due."""
    burst = WorkerOptions(alias=alias, burst=True, threads=2, grace=5.0, **options)
    build_producer(Assignment(burst, worker=new_id(), supervisor=new_id())).run()


def run(job: Job) -> Job:
    """Work, and the job as it is then."""
    work(job._state.db or "default")
    return fresh(job)


def run_attempts(job: Job, count: int) -> Job:
    """Work until so many attempts are over, without waiting for the pauses between them."""
    for _ in range(count):
        run_now(job)
        job = run(job)
    return job


def fresh(job: Job) -> Job:
    return Job.objects.using(job._state.db or "default").get(pk=job.pk)


def pause_of(job: Job) -> float:
    """Seconds from the end of the last attempt to the next, both by the server's clock."""
    return (job.run_after - datetime.fromisoformat(job.errors[-1]["finished_at"])).total_seconds()


def seconds_until(moment: datetime) -> float:
    return (moment - timezone.now()).total_seconds()


in_the_shop = [pytest.mark.usefixtures("shop"), pytest.mark.django_db(transaction=True, databases="__all__")]


def in_shop(test: Any) -> Any:
    """Run a test on real transactions, with the shop installed."""
    for mark in in_the_shop:
        test = mark(test)
    return test


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
    ids = example("bulk").import_orders(emails)
    work()
    assert [Job.objects.get(pk=pk).result for pk in ids] == emails


@in_shop
def test_enqueue_in_async_code() -> None:
    job = asyncio.run(example("async_code").place_order("ann@example.com"))
    assert run(job).status == "done"


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

    job = run(enqueue(charge, order.pk))
    assert job.status == "failed"
    type(order).objects.update(total=5)
    assert control.charge_again() == 1
    job = run(job)
    assert (job.status, job.attempts, len(job.errors)) == ("done", 2, 1)
    assert example("models").Order.objects.get().paid
    assert run(enqueue(control.export_orders)).status == "done"


@in_shop
def test_a_sync_task_is_asked_to_stop() -> None:
    job = enqueue(example("control").watch, 60)
    with working():
        deadline = monotonic() + DEADLINE
        while fresh(job).status == "pending":
            assert monotonic() < deadline
        assert example("control").withdraw_one(job)
    ended = fresh(job)
    assert ended.cancel_requested_at is not None
    assert (ended.status, ended.result) == ("done", "stopped")


@in_shop
def test_an_async_task_is_asked_to_stop(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    began, real_sleep = Event(), asyncio.sleep

    async def sleep(seconds: float) -> None:
        began.set()
        await real_sleep(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    job = enqueue(example("fetching").listen, 60)
    with working():
        assert began.wait(DEADLINE)
        assert example("control").withdraw_one(job)
    assert fresh(job).status == "cancelled"
    assert "asked to stop" in capsys.readouterr().out


@contextmanager
def working() -> Iterator[None]:
    """A worker beside this thread, until nothing is due."""
    worker = Thread(target=work)
    worker.start()
    try:
        yield
    finally:
        worker.join()


@in_shop
@pytest.mark.parametrize("name", ["export_catalogue", "follow_parcel"])
def test_a_task_cleans_up_at_its_timeout(name: str, tmp_path: Path) -> None:
    job = run(enqueue(getattr(example("timeouts"), name), str(tmp_path), *TOO_LONG[name]))
    assert (job.status, job.attempts) == ("failed", 1)
    assert job.errors[0]["class"] == "django_pgqueue.exceptions.TaskTimeout"
    assert job.last_attempted_at is not None
    assert job.finished_at is not None
    assert job.finished_at - job.last_attempted_at >= timedelta(seconds=0.9)
    assert list(tmp_path.iterdir()) == []


TOO_LONG: dict[str, list[Any]] = {"export_catalogue": [100_000], "follow_parcel": ["parcel"]}


@in_shop
def test_a_task_that_is_quick_enough_has_no_timeout(tmp_path: Path) -> None:
    job = run(enqueue(example("timeouts").export_catalogue, str(tmp_path), 3))
    assert (job.status, job.result) == ("done", 3)
    assert [path.name for path in tmp_path.iterdir()] == ["catalogue"]
    assert run(enqueue(example("timeouts").render_invoice, 5)).result == "invoice 5"


@in_shop
def test_a_task_that_extends_its_timeout() -> None:
    """Eight pages take 2.4 s, the timeout is 2 s: without the extension it would be interrupted."""
    job = run(enqueue(example("timeouts").import_pages, 8))
    assert (job.status, job.result, job.attempts) == ("done", 8, 1)


@in_shop
def test_an_operator_extends_a_timeout() -> None:
    job = enqueue(example("timeouts").render_invoice, 1)
    assert not example("timeouts").give_an_hour(job)  # it does not run yet
    Job.objects.filter(pk=job.pk).update(status="running", lease=77, worker=5, deadline=timezone.now())
    assert example("timeouts").give_an_hour(job)
    deadline = fresh(job).deadline
    assert deadline is not None
    assert seconds_until(deadline) == pytest.approx(3600, abs=60)
    with connections["default"].cursor() as cursor:
        cursor.execute(statements("extend").replace("1,", f"{job.pk},").replace("3600", "7200"))
        assert cursor.fetchone() == (True,)
    later = fresh(job).deadline
    assert later is not None
    assert seconds_until(later) == pytest.approx(7200, abs=60)


@in_shop
def test_a_wait_with_a_limit_of_its_own(tmp_path: Path) -> None:
    page = tmp_path / "page"
    page.write_bytes(b"all there")
    assert example("timeouts").ask_warehouse.call(page.as_uri()) == b"all there"


@in_shop
def test_an_idempotency_key() -> None:
    idempotent = example("idempotent")
    job = run(enqueue(idempotent.charge_card, 5))
    assert django_pgqueue.retry(job) == 1
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
            with connections["default"].cursor() as cursor:
                cursor.execute("CALL pgqueue_finish_one(%s, %s, 'release')", [job.pk, job.lease])
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
    job = run(enqueue(fencing.update_turnover, account.pk))
    account.refresh_from_db()
    assert turnovers == [1, 2]
    assert account.balance == 7
    assert len(raised) == 1
    assert (job.status, job.attempts, job.errors) == ("done", 1, [])


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


@in_shop
def test_keep_by_queue() -> None:
    example("queues").set_up_queues()
    assert Queue.objects.get(name="mail").keep_failed == timedelta(days=90)
    order = example("models").Order.objects.create(email="ann@example.com")
    ids = enqueue_many([example("tasks").send_receipt.bind(pk) for pk in (order.pk, 0)])
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
def test_current_job() -> None:
    report = example("context").report
    job = enqueue(report.using(metadata={"why": "audit"}))
    assert run(job).result == {"id": job.pk, "attempt": 1, "queue": "default", "why": "audit"}


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


# -- settings


def setting(name: str) -> dict[str, Any]:
    """The names that a settings example assigns."""
    values = runpy.run_path(str(EXAMPLES / "settings" / f"{name}.py"))
    return {key: value for key, value in values.items() if key.isupper()}


def test_the_pgqueue_example_is_valid() -> None:
    with override_settings(**setting("pgqueue")):
        assert conf.problems() == []
        assert conf.current().failed_retention == timedelta(days=90)


@pytest.mark.parametrize("name", ["tasks", "tasks_queues", "tasks_databases"])
def test_the_examples_of_backends_are_valid(name: str) -> None:
    with override_settings(**setting(name)):
        assert [message for message in run_checks(tags=["pgqueue"]) if message.id != "pgqueue.W002"] == []


def test_the_logging_example_is_valid(capsys: pytest.CaptureFixture[str]) -> None:
    import logging.config

    before = {
        name: (logging.getLogger(name).level, list(logging.getLogger(name).handlers)) for name in LOGGERS
    }
    try:
        logging.config.dictConfig(setting("logging")["LOGGING"])
        logging.getLogger("django_pgqueue.worker.producer.producer").info("connected")
        logging.getLogger("django_pgqueue.job").info("job 1 done")
        logging.getLogger("django_pgqueue.job").warning("job 2 retry")
    finally:
        for name, (level, handlers) in before.items():
            logging.getLogger(name).setLevel(level)
            logging.getLogger(name).handlers = handlers
    assert capsys.readouterr().err.split("\n") == ["connected", "job 2 retry", ""]


LOGGERS = ("django_pgqueue", "django_pgqueue.job")


def test_the_pooler_example(monkeypatch: pytest.MonkeyPatch) -> None:
    assert setting("pooler")["DATABASES"]["default"]["PORT"] == "6432"
    monkeypatch.setenv("DATABASE_PORT", "5432")
    assert setting("pooler")["DATABASES"]["default"]["PORT"] == "5432"


def test_the_example_of_a_statement_timeout(django_db_setup: None, monkeypatch: pytest.MonkeyPatch) -> None:
    for environment, shown in ((None, "30s"), ("5000", "5s")):
        if environment:
            monkeypatch.setenv("STATEMENT_TIMEOUT", environment)
        options = setting("statement_timeout")["DATABASES"]["default"]["OPTIONS"]
        with psycopg.connect(os.environ["DATABASE_URL"], **options) as connection:
            assert connection.execute("SHOW statement_timeout").fetchone() == (shown,)


# -- SQL


def statements(name: str) -> str:
    return (EXAMPLES / "sql" / f"{name}.sql").read_text()


@in_shop
def test_enqueue_from_sql() -> None:
    order = example("models").Order.objects.create(pk=1, email="ann@example.com")
    with connections["default"].cursor() as cursor:
        cursor.execute(statements("enqueue"))
    first, second = Job.objects.order_by("pk")
    assert (first.args, first.queue_name, first.max_attempts) == ([order.pk], "default", None)
    assert (second.kwargs, second.queue_name, second.priority) == ({"order_id": 1}, "mail", 10)
    first = run(first)
    assert (first.status, first.max_attempts) == ("done", 5)  # the worker has filled the policy in


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
    ids = enqueue_many(receipt.bind(number) for number in range(3))
    with connections["default"].cursor() as cursor:
        cursor.execute(re.sub(r"\b[123]\b", lambda found: str(ids[int(found[0]) - 1]), statements("control")))
    assert {job.status for job in Job.objects.all()} == {"cancelled"}


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
def test_finish_one_from_sql() -> None:
    """Another program claims a job (here: the worker's statement) and reports it by the procedure."""
    job = enqueue(example("tasks").send_receipt, 1)
    Job.objects.filter(pk=job.pk).update(status="running", lease=77, worker=5, attempts=1)
    call = statements("finish_one").replace(":job", str(job.pk)).replace(":lease", "77")
    with connections["default"].cursor() as cursor:
        cursor.execute(call)
        assert fresh(job).result == {"sent": True}
        with pytest.raises(IntegrityError) as refusal:
            cursor.execute(call)
    assert getattr(refusal.value.__cause__, "sqlstate", "") == "23Q01"


@in_shop
def test_the_wake_up_can_be_turned_off() -> None:
    with transaction.atomic(), connections["default"].cursor() as cursor:
        cursor.execute(statements("wake_off"))
        cursor.execute("SELECT pgqueue_wake_once_v1('default')")
        assert cursor.fetchone() == (False,)


# -- the quickstart, as commands


@pytest.fixture
def quickstart(django_db_setup: None) -> Iterator[dict[str, str]]:
    """A new database on the server of the tests, as an environment for the quickstart's project."""
    server: Any = environ.Env.db_url_config(os.environ["DATABASE_URL"])
    name = f"quickstart_{uuid4().hex[:12]}"
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
        yield {
            **{key: value for key, value in os.environ.items() if not key.startswith("DJANGO_")},
            "PGDATABASE": name, "PGHOST": server["HOST"], "PGPORT": str(server["PORT"] or 5432),
            "PGUSER": server["USER"], "PGPASSWORD": server["PASSWORD"] or "",
            "PYTHONPATH": str(DOCS.parent),
        }  # fmt: skip
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


def manage(environment: dict[str, str], *command: str) -> str:
    done = subprocess.run(
        [sys.executable, "manage.py", *command],
        cwd=EXAMPLES, env=environment, check=False, text=True, timeout=120,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_the_quickstart(quickstart: dict[str, str]) -> None:
    page = (DOCS / "tutorial" / "quickstart.md").read_text()
    assert "shop.tests" not in page
    manage(quickstart, "migrate", "--run-syncdb", "--verbosity", "0")
    said = manage(quickstart, "shell", "--command", (EXAMPLES / "first_order.py").read_text())
    assert "pending" in said
    manage(quickstart, "runqueueworker", "--burst")
    said = manage(quickstart, "shell", "--command", (EXAMPLES / "look.py").read_text())
    assert "done ann@example.com 1" in said
    for command in re.findall(r"^python manage\.py (\S+)", page, re.MULTILINE):
        assert command in {"migrate", "makemigrations", "shell", "runqueueworker", "check"}


# -- the pages


def test_every_example_is_on_a_page() -> None:
    included = {
        (page.parent / name).resolve()
        for page in PAGES
        for name in re.findall(r"\{literalinclude\} (\S+)", page.read_text())
    }
    assert included, "no page includes an example"
    assert [path for path in included if not path.exists()] == []
    structure = {"__init__.py", "manage.py"}
    files = {path for path in EXAMPLES.rglob("*") if path.is_file() and path.suffix != ".pyc"}
    assert {path for path in files if path.name not in structure} == included


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_python_and_sql_on_the_pages_come_from_files_that_run(page: Path) -> None:
    written_here = r"^ *(?:```|:::)\{?(?:python|sql|code-block)\}?.*"
    assert re.findall(written_here, page.read_text(), re.MULTILINE) == []


SQL_NAMES = (
    "pgqueue_enqueue", "pgqueue_cancel", "pgqueue_retry", "pgqueue_extend", "pgqueue_finish_one",
    "pgqueue_status_is_terminal", "pgqueue_status_is_claimable",
)  # fmt: skip


def reference(name: str) -> str:
    return (DOCS / "reference" / f"{name}.md").read_text()


def rows(text: str) -> list[list[str]]:
    """The rows of the tables of a page, without their heads; cells without the marks of code."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    rules = [place for place, line in enumerate(lines) if set(line) <= set("|- ")]
    heads = {*rules, *(place - 1 for place in rules)}
    bodies = [line for place, line in enumerate(lines) if place not in heads]
    return [[cell.strip().replace("`", "") for cell in line.strip("|").split(" | ")] for line in bodies]


def test_the_page_of_settings_lists_each_with_its_default() -> None:
    def shown(value: object) -> str:
        return f"timedelta(days={value.days})" if isinstance(value, timedelta) else repr(value)

    found = dict(re.findall(r"^## ([A-Z_]+)\n\nDefault: `([^`]+)`", reference("settings"), re.MULTILINE))
    defaults = conf.Settings()
    expected = {name.upper(): shown(getattr(defaults, name)) for name in conf.Settings.__dataclass_fields__}
    assert found == expected


def test_the_page_of_commands_lists_each_option_with_its_default() -> None:
    command = load_command_class("django_pgqueue", "runqueueworker")
    common = {"--help", "--version", "--verbosity", "--settings", "--pythonpath", "--traceback", "--no-color",
              "--force-color", "--skip-checks"}  # fmt: skip
    options = {
        action.option_strings[-1]: action
        for action in command.create_parser("manage.py", "runqueueworker")._actions
        if action.option_strings and action.option_strings[-1] not in common
    }
    listed = {row[0].split()[0]: row[1] for row in rows(reference("commands")) if row[0].startswith("--")}
    assert set(listed) == set(options)
    for name, action in options.items():
        if isinstance(action.default, int) and not isinstance(action.default, bool):
            assert listed[name] == str(action.default)


def test_the_page_of_checks_lists_each_id() -> None:
    package = Path(django_pgqueue.__file__).parent
    in_code = {
        f"pgqueue.{found}"
        for path in package.glob("checks*.py")
        for found in re.findall(r"\b[EWI]\d{3}\b", path.read_text())
    }
    listed = re.findall(r"^## (pgqueue\.[EWI]\d{3})", reference("checks"), re.MULTILINE)
    assert sorted(listed) == sorted(in_code)
    for section in re.split(r"^## ", reference("checks"), flags=re.MULTILINE)[1:]:
        assert "Cause:" in section, section[:20]
        assert "Remedy:" in section, section[:20]


def test_the_page_of_the_tables_lists_each_column_of_job() -> None:
    listed = [row[0] for row in rows(reference("job").split("## Properties")[0]) if len(row) == 3]
    columns = [field.name for field in Job._meta.get_fields() if isinstance(field, models.Field)]
    assert sorted(listed) == sorted(columns)


@pytest.mark.django_db
def test_the_page_of_statuses_says_what_the_table_says() -> None:
    def word(flag: bool) -> str:
        return "yes" if flag else "no"

    expected = {(s.status, word(s.is_claimable), word(s.is_terminal)) for s in QueueStatus.objects.all()}
    assert {tuple(row[:3]) for row in rows(reference("statuses"))} == expected


@pytest.mark.django_db
@pytest.mark.parametrize("name", SQL_NAMES)
def test_the_page_of_sql_shows_the_signatures(name: str) -> None:
    with connections["default"].cursor() as cursor:
        cursor.execute("SELECT pg_get_function_arguments(oid) FROM pg_proc WHERE proname = %s", [name])
        ((arguments,),) = cursor.fetchall()
    parameters = re.findall(r"(?:^|, )(?:IN )?(?:VARIADIC )?(\w+) ", re.sub(r"'[^']*'", "''", arguments))
    section = re.split(r"^## ", reference("sql"), flags=re.MULTILINE)
    (text,) = [part for part in section if part.startswith(f"`{name}`")]
    listed = [row[0] for row in rows(text) if re.fullmatch(r"\w+", row[0]) and len(row) == 3]
    assert listed == parameters


def test_the_page_of_sql_lists_the_codes_of_the_procedure() -> None:
    code = (Path(django_pgqueue.__file__).parent / "sql" / "finish_one_v1.sql").read_text()
    raised = set(re.findall(r"ERRCODE = '(\w{5})'", code))
    assert set(re.findall(r"`(23Q\d\d)`", reference("sql"))) == raised


def test_the_page_of_functions_has_every_public_name() -> None:
    directives = re.findall(
        r"^\.\. (?:auto|py:)\w+:: django_pgqueue\.(\w+)", reference("functions"), re.MULTILINE
    )
    assert set(django_pgqueue.__all__) <= set(directives)


def test_the_page_of_functions_shows_every_option_of_a_task() -> None:
    (shown,) = re.findall(
        r"^\.\. py:function:: django_pgqueue\.task(\(.*\))", reference("functions"), re.MULTILINE
    )
    documented: dict[str, Any] = {}
    exec(f"def task{shown}: ...", documented)  # noqa: S102

    def options(function: Any) -> dict[str, Any]:
        return {name: parameter.default for name, parameter in inspect.signature(function).parameters.items()}

    expected = {**options(django_pgqueue.task), "backend": None}  # the name of the implicit one is ours
    assert options(documented["task"]) == expected
