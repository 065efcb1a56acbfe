"""The pages "Coming from Celery, django-tasks-db, django-q2, procrastinate": examples in the real queues.

Celery has a broker in memory. Outside of CI, the tests of a queue that is not installed are skipped.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from datetime import datetime
from importlib import import_module
from io import StringIO
from typing import Any
from unittest.mock import Mock

import django
import pytest
from django.apps import apps
from django.conf import settings
from django.contrib import admin
from django.core.management import call_command
from django.db import connections
from django.test import override_settings
from django.utils import timezone

from django_pgqueue.models import Job
from tests.support.jobs import sql
from tests.support.loggers import loggers_restored
from tests.support.sessions import Connect

from .shop import committed, example, in_shop, order, run, seconds_until, setting, skip_without, work

pytestmark = [in_shop[0], committed]

DAY = 86_400


@pytest.fixture(scope="module")
def peers(shop: None, django_db_blocker: Any) -> Iterator[None]:
    """The other queues, installed, with their tables in the default database."""
    if django.VERSION < (6, 0):
        pytest.skip("the examples import django.tasks")
    skip_without("django_q", "django_tasks_db", "procrastinate")
    more = ["django_q", "django_tasks_db", "procrastinate.contrib.django"]
    queues = {"Q_CLUSTER": {"name": "shop", "orm": "default", "workers": 1, "timeout": 30, "retry": 60}}
    with (
        override_settings(**queues),  # first: django-q2 reads it when it is imported
        override_settings(INSTALLED_APPS=[*settings.INSTALLED_APPS, *more]),
        django_db_blocker.unblock(),
    ):
        managed = [
            model
            for label in ("django_q", "django_tasks_database")
            for model in apps.get_app_config(label).get_models()
            if not model._meta.proxy
        ]
        connection = connections["default"]
        with connection.schema_editor() as editor:
            for model in managed:
                editor.create_model(model)
        sql(import_module("procrastinate.schema").SchemaManager.get_schema())
        yield
        with connection.schema_editor() as editor:
            for model in managed:
                editor.delete_model(model)
        sql(_DROP_PROCRASTINATE)
        connection.close()
        theirs: Any = import_module("procrastinate.contrib.django.procrastinate_app")
    theirs.current_app = theirs.FutureApp()  # for the next test of this module
    # Other tests see neither their pages in the admin nor the tasks.
    for model in [*admin.site._registry]:
        if model._meta.app_label not in apps.app_configs:
            admin.site.unregister(model)
    for name in ("db_tasks", "q2_tasks", "procrastinate_tasks"):
        vars(sys.modules["shop"]).pop(name, None)
        sys.modules.pop(f"shop.{name}", None)
    gc.collect()


_DROP_PROCRASTINATE = """
    DO $$ DECLARE thing text; BEGIN
        FOR thing IN SELECT 'TABLE ' || oid::regclass FROM pg_class
            WHERE relname LIKE 'procrastinate%' AND relkind = 'r'
        LOOP EXECUTE 'DROP ' || thing || ' CASCADE'; END LOOP;
        FOR thing IN SELECT 'FUNCTION ' || oid::regprocedure FROM pg_proc WHERE proname LIKE 'procrastinate%'
        LOOP EXECUTE 'DROP ' || thing || ' CASCADE'; END LOOP;
        FOR thing IN SELECT 'TYPE ' || oid::regtype FROM pg_type
            WHERE typname LIKE 'procrastinate%' AND typtype IN ('e', 'c')
        LOOP EXECUTE 'DROP ' || thing || ' CASCADE'; END LOOP;
    END $$
"""


@pytest.fixture
def ordered(peers: None) -> Any:
    example("idempotent").CHARGED.clear()
    return order(total=42)


def tasks(name: str) -> Any:
    """TASKS of a settings example, for the tasks of ``db_tasks``, which are made anew."""
    sys.modules.pop("shop.db_tasks", None)
    return override_settings(**setting(name))


THEIRS, OURS = "tasks_db", "tasks_moved"


def moved(command: str) -> str:
    out = StringIO()
    call_command(command, stdout=out)
    return out.getvalue().strip()


def moved_once(command: str) -> Job:
    """Move two calls, one of which is for tomorrow. The job of the other has run."""
    assert [moved(command), moved(command)] == ["2 moved", "0 moved"]
    now, later = Job.objects.order_by("run_after")
    assert (later.args, later.kwargs) == (now.args, now.kwargs)
    assert seconds_until(later.run_after) == pytest.approx(DAY, abs=60)
    assert run(now).status == "done"
    return now


# --- django-tasks-db


def test_django_tasks_db_needs_another_backend_only(ordered: Any) -> None:
    with tasks(THEIRS):
        result = example("db_tasks").check_out(ordered)
        with loggers_restored():  # the command sets the level of Django's own loggers
            call_command("db_worker", queue_name="*", interval=0, batch=True, reload=False, verbosity=0)
        result.refresh()
        assert (result.status, result.return_value) == ("SUCCESSFUL", ordered.pk)
    with tasks(OURS):
        result = example("db_tasks").check_out(ordered)
        work()
        result.refresh()
        assert (result.status, result.return_value) == ("SUCCESSFUL", ordered.pk)


def test_what_waits_in_django_tasks_db_is_moved_once(ordered: Any) -> None:
    with tasks(THEIRS):
        example("db_tasks").check_out(ordered)
        example("db_tasks").check_out_tomorrow(ordered)
    with tasks(OURS):
        now = moved_once("import_django_tasks_db")
    assert (now.queue_name, now.args) == ("billing", [ordered.pk])


def test_a_task_that_a_worker_of_django_tasks_db_has_locked_is_not_moved(
    ordered: Any, connect: Connect
) -> None:
    with tasks(THEIRS):
        example("db_tasks").check_out(ordered)
    with tasks(OURS):
        connect().execute("SELECT FROM django_tasks_database_dbtaskresult FOR UPDATE")
        assert moved("import_django_tasks_db") == "0 moved"
    assert not Job.objects.exists()


# --- django-q2


def test_django_q2_does_the_same(ordered: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from django_q.models import Task

    q2 = example("q2_tasks")
    with monkeypatch.context() as patched:
        patched.setattr("django_q.conf.Conf.SYNC", True)  # its own worker runs the task in this process
        q2.check_out(ordered)
    assert Task.objects.get().result == ordered.pk
    example("billing").check_out(ordered)
    assert run(Job.objects.get()).status == "done"
    q2.every_night()
    assert q2.Schedule.objects.get().cron == "0 3 * * *"


def test_what_waits_in_django_q2_is_moved_once(ordered: Any) -> None:
    from django_q.models import OrmQ, Schedule

    q2 = example("q2_tasks")
    q2.check_out(ordered)
    q2.check_out_tomorrow(ordered)
    q2.every_night()
    q2.async_task("os.getpid")  # this one stays
    now = moved_once("import_django_q2")
    assert OrmQ.objects.count() == Schedule.objects.count() == 1
    assert (now.task_path, now.args) == ("shop.billing.charge_order", [ordered.pk])


def test_a_task_that_a_cluster_of_django_q2_runs_is_not_moved(ordered: Any) -> None:
    from django_q.brokers.orm import ORM

    example("q2_tasks").check_out(ordered)
    ((_, _payload),) = ORM(list_key="shop").dequeue()
    assert moved("import_django_q2") == "0 moved"


def test_a_payload_of_django_q2_with_a_wrong_signature_is_not_unpickled(ordered: Any) -> None:
    from django_q.models import OrmQ
    from django_q.signing import BadSignature

    q2 = example("q2_tasks")
    q2.check_out(ordered)
    OrmQ.objects.create(key="shop", payload="forged", lock=OrmQ.objects.get().lock)
    with pytest.raises(BadSignature):
        moved("import_django_q2")
    assert OrmQ.objects.count() == 2  # all or nothing
    assert not Job.objects.exists()


# --- procrastinate


def test_procrastinate_does_the_same(ordered: Any) -> None:
    from procrastinate.contrib.django import app
    from procrastinate.testing import InMemoryConnector

    before, after = example("procrastinate_tasks"), example("billing")
    with app.replace_connector(InMemoryConnector()) as memory:
        before.order_changed(ordered)
        before.order_changed(ordered)
        memory.run_worker(wait=False, install_signal_handlers=False, listen_notify=False)
        connector: Any = memory.connector
        (job,) = connector.jobs.values()
        assert job["status"] == "succeeded"
    retry = before.charge_order.retry_strategy
    assert retry.max_attempts + 1 == after.charge_order.max_attempts
    assert retry.retry_exceptions == {ConnectionError}
    assert (before.charge_order.queue, before.charge_order(order_id=ordered.pk)) == ("billing", ordered.pk)


def test_what_waits_in_procrastinate_is_moved_once(ordered: Any) -> None:
    from procrastinate.contrib.django.models import ProcrastinateJob

    before = example("procrastinate_tasks")
    before.check_out(ordered)
    before.check_out_tomorrow(ordered)
    before.order_changed(ordered)  # this one stays
    now = moved_once("import_procrastinate")
    waiting = ProcrastinateJob.objects.filter(status="todo").values_list("task_name", flat=True)
    assert list(waiting) == ["shop.procrastinate_tasks.index_order"]
    assert (now.task_path, now.kwargs) == ("shop.billing.charge_order", {"order_id": ordered.pk})


def test_a_job_that_a_worker_of_procrastinate_has_taken_is_not_moved(ordered: Any) -> None:
    sql("DELETE FROM procrastinate_jobs")
    example("procrastinate_tasks").check_out(ordered)
    # Race: a worker takes the job after the command has listed it.
    sql("UPDATE procrastinate_jobs SET status = 'doing'")
    command = import_module("shop.management.commands.import_procrastinate")
    (job,) = command.ProcrastinateJob.objects.filter(status="doing")
    with pytest.MonkeyPatch.context() as patched:
        listed = Mock(**{"order_by.return_value": [job]})
        patched.setattr(command.ProcrastinateJob.objects, "filter", lambda **_: listed)
        assert moved("import_procrastinate") == "0 moved"
    assert not Job.objects.exists()


# --- Celery


def messages(app: Any) -> list[tuple[str, list[Any], str | None]]:
    """Take what is in the queue: the name of each task, its arguments, and when it is to run."""
    with app.connection_for_read() as connection, connection.SimpleQueue("billing") as queue:
        found = [queue.get(block=False) for _ in range(queue.qsize())]
        for message in found:
            message.ack()
    return [(each.headers["task"], each.payload[0], each.headers["eta"]) for each in found]


@pytest.fixture
def celery(shop: None, own_celery: None) -> Iterator[Any]:
    """A Celery app whose messages stay in this process."""
    app = import_module("celery").Celery("shop", broker="memory://", set_as_current=True)
    app.conf.task_routes = {"shop.celery_tasks.*": {"queue": "billing"}}
    yield app
    messages(app)
    app.close()
    for name in ("shop.celery_tasks", "shop.celery_bridge"):
        sys.modules.pop(name, None)


def test_both_versions_do_the_same(celery: Any) -> None:
    before, after = import_module("shop.celery_tasks"), example("billing")
    bank = example("idempotent").CHARGED
    bank.clear()
    old, new = order(total=5), order(total=5)
    before.check_out(old)
    assert messages(celery) == [("shop.celery_tasks.charge_order", [old.pk], None)]  # after the commit
    before.charge_order.apply(args=[old.pk]).get()
    after.check_out(new)
    assert run(Job.objects.get()).status == "done"
    assert bank == {f"order-{old.pk}": old.pk, f"order-{new.pk}": new.pk}
    assert type(old).objects.filter(paid=True).count() == 2
    Job.objects.all()._raw_delete("default")
    before.check_out_tomorrow(old)
    after.check_out_tomorrow(old)
    ((_, arguments, eta),) = messages(celery)
    assert (arguments, eta is not None) == ([old.pk], True)
    countdown = (datetime.fromisoformat(eta or "") - timezone.now()).total_seconds()
    assert seconds_until(Job.objects.get().run_after) == pytest.approx(countdown, abs=60)


def test_both_versions_have_the_same_policy(celery: Any) -> None:
    before, after = import_module("shop.celery_tasks").charge_order, example("billing").charge_order
    assert before.max_retries + 1 == after.max_attempts == len(after.backoff) + 1
    assert before.autoretry_for == (ConnectionError,)
    assert after.retry_on in (ConnectionError, (ConnectionError,))
    assert before.soft_time_limit == after.timeout
    assert celery.amqp.router.route({}, before.name)["queue"].name == after.queue_name
    assert [before.retry_backoff * 2**retry for retry in range(4)] == list(after.backoff)


def test_calls_that_are_left_in_the_broker(celery: Any) -> None:
    bridge = import_module("shop.celery_bridge")
    assert bridge.pass_on.name == "shop.celery_tasks.charge_order"
    ordered = order()
    bridge.pass_on.apply(args=[ordered.pk]).get()
    assert run(Job.objects.get()).status == "done"
    ordered.refresh_from_db()
    assert ordered.paid
