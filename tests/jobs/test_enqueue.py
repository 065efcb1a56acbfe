"""Enqueue a call: the row that it becomes, its transaction, the hooks that it passes, and what is refused."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import connection, transaction
from django.test import override_settings
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from django_pgqueue import Batch, aenqueue, aenqueue_many, chain, enqueue, enqueue_many, task
from django_pgqueue.exceptions import InvalidJSON
from django_pgqueue.maintenance.schedules import synchronize
from django_pgqueue.models import Job, Schedule
from django_pgqueue.testing import dummy_jobs, immediate_jobs
from tests.app import hooks
from tests.app.hooks import CALLS, see
from tests.app.models import Entry
from tests.app.tasks import elsewhere, mail, noop, short_lived
from tests.receipts.models import Order, Receipt
from tests.receipts.tasks import send as send_receipt
from tests.support.databases import alias
from tests.support.jobs import sql
from tests.support.waiting import run

pytestmark = pytest.mark.django_db


@pytest.fixture
def now() -> datetime:
    """Return the time of the database, which is the only clock that is used."""
    moment = sql("SELECT clock_timestamp()")
    assert isinstance(moment, datetime)
    return moment


def stored(job: Job) -> dict[str, Any]:
    return dict(Job.objects.using(job._state.db).filter(pk=job.pk).values().get())


def test_the_job_that_comes_back_is_the_row(now: datetime, wording: Any) -> None:
    job = enqueue(mail.using(metadata={"why": "late"}), 5)
    row = stored(job)
    assert {name: getattr(job, name) for name in row} == row
    for name in ("id", "enqueued_at", "run_after"):
        del row[name]
    assert row == wording
    assert now <= job.enqueued_at == job.run_after <= now + timedelta(seconds=10)
    assert not job._state.adding
    assert job._state.db == "default"


def test_settings_fill_in_what_the_task_leaves_open(settings: Any) -> None:
    settings.PGQUEUE = {"MAX_ATTEMPTS": 9, "TIMEOUT": 77}
    job = enqueue(noop)
    assert (job.max_attempts, job.timeout, job.on_lost) == (9, 77, "rerun")


@pytest.mark.django_db(transaction=True)
@pytest.mark.promise("exists-if-committed")
def test_a_rollback_takes_its_jobs_away_with_its_rows() -> None:
    with transaction.atomic():
        kept = enqueue(noop)
        with transaction.atomic():
            Entry.objects.create(key="with")
            enqueue(noop)
            transaction.set_rollback(True)
    assert not Entry.objects.exists()
    assert list(Job.objects.all()) == [kept]
    with transaction.atomic():
        enqueue_many([noop.bind(number) for number in range(5)])
        transaction.set_rollback(True)
    assert list(Job.objects.all()) == [kept]


@pytest.mark.django_db(transaction=True)
@pytest.mark.promise("seen-at-the-commit")
@pytest.mark.promise("one-statement")
def test_the_job_is_one_statement_and_invisible_until_the_commit() -> None:
    with alias("second") as second:
        for task_ in (noop, mail.using(run_after=timedelta(hours=1))):
            with transaction.atomic(), CaptureQueriesContext(connection) as queries:
                job = enqueue(task_, 1)
                assert not Job.objects.using(second).filter(pk=job.pk).exists()
            assert ["_pgqueue_enqueue" in query["sql"] for query in queries] == [True]
            assert Job.objects.using(second).filter(pk=job.pk).exists()
        with CaptureQueriesContext(connection) as queries:
            job = enqueue(noop)
        assert len(queries) == 1
        assert Job.objects.using(second).get(pk=job.pk) == job, (
            "without a transaction it is committed at once"
        )


@pytest.mark.django_db(databases=["default", "other"])
def test_the_alias_of_the_task_and_of_the_call() -> None:
    assert enqueue(elsewhere, 1)._state.db == "other"
    assert enqueue(noop.using(database="other"))._state.db == "other"
    assert enqueue(elsewhere.using(database="default"), 1)._state.db == "default"
    assert (Job.objects.count(), Job.objects.using("other").count()) == (1, 2)


class JobsToOther:
    """A router that puts the queue into the other database."""

    def db_for_write(self, model: type, **hints: Any) -> str | None:
        return "other" if model._meta.app_label == "django_pgqueue" else None  # type: ignore[attr-defined]

    db_for_read = db_for_write


@pytest.mark.django_db(databases=["default", "other"])
def test_a_router_says_where_jobs_lie(settings: Any) -> None:
    settings.DATABASE_ROUTERS = ["tests.jobs.test_enqueue.JobsToOther"]
    job = enqueue(noop)
    assert job._state.db == "other"
    assert Job.objects.get(pk=job.pk).status == "pending"
    assert not Job.objects.using("default").exists()


def test_a_delay_counts_from_the_enqueue_by_the_clock_of_the_database(now: datetime) -> None:
    later = noop.using(run_after=timedelta(minutes=5))
    first, second = enqueue(later), enqueue(later)
    for job in (first, second):
        assert abs(job.run_after - job.enqueued_at - timedelta(minutes=5)) < timedelta(milliseconds=1)
    assert second.run_after > first.run_after


@pytest.mark.parametrize("run_after", [None, -timedelta(days=1), timedelta(days=1)])
def test_expiry_counts_from_the_later_of_enqueue_and_run_after(run_after: timedelta | None) -> None:
    moment = run_after and timezone.now() + run_after
    job = enqueue(short_lived.using(run_after=moment))
    assert job.run_after == (moment if moment and run_after > timedelta(0) else job.enqueued_at)  # type: ignore[operator]
    assert job.expires_at == job.run_after + timedelta(hours=2)
    delayed = enqueue(short_lived.using(run_after=timedelta(days=1)))
    assert delayed.expires_at == delayed.run_after + timedelta(hours=2)


def test_arguments_come_back_as_they_were() -> None:
    args = ["ünï", 'quote " and \\ back', "%s {}", 2**70, 1.5, None, True, [[]], {"a": {"b": [1]}}, "\u2028"]
    job = enqueue(noop, *args, task=1, self=2, using=3, priority=4)
    row = stored(job)
    assert row["args"] == job.args == args
    assert row["kwargs"] == job.kwargs == {"task": 1, "self": 2, "using": 3, "priority": 4}


def test_the_size_is_that_of_the_json_and_measured_once(settings: Any) -> None:
    # As jsonb these numbers take six times as much space. The limit applies to what the caller has sent.
    many = [1] * 400_000
    assert len(enqueue(noop, many).args[0]) == 400_000
    settings.PGQUEUE = {"MAX_JSON_BYTES": 1000}
    enqueue(noop, "x" * 994)
    with pytest.raises(InvalidJSON, match="more than MAX_JSON_BYTES"):
        enqueue(noop, "x" * 1000)
    with pytest.raises(InvalidJSON, match=r"metadata of tests\.app\.tasks\.noop takes 1,010 bytes"):
        enqueue(noop.using(metadata={"key": "x" * 1000}))
    assert Job.objects.count() == 2


@pytest.mark.parametrize(("what", "message"), [
    (len, "takes a task"), ("tests.app.tasks.noop", "takes a task"), (None, "takes a task"),
    (noop.func, "Decorate the function"),
])  # fmt: skip
def test_only_tasks_are_enqueued(what: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        enqueue(what)
    assert not Job.objects.exists()


@pytest.mark.promise("arguments-fit")
def test_arguments_that_the_task_does_not_take_are_refused() -> None:
    with pytest.raises(TypeError, match=r"^tests\.app\.tasks\.mail\(\) missing a .* argument: 'number'$"):
        enqueue(mail)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"mail\(\) got an unexpected keyword argument 'color'"):
        run(aenqueue(mail.using(priority=1), 1, color="red"))  # type: ignore[call-arg]
    assert not Job.objects.exists()


# -- a call with its arguments


@task(queue_name="send", max_attempts=3)
def send(pk: int, note: str = "") -> str:
    return f"{pk}{note}"


def test_a_call_is_enqueued_with_its_options() -> None:
    call = send.bind(7, note="x").using(
        priority=5, max_attempts=9, timeout=timedelta(minutes=2), expires_after=60, metadata={"a": 1}
    )
    job = Job.objects.get(pk=enqueue(call).pk)
    assert (job.task_path, job.args, job.kwargs) == (send.module_path, [7], {"note": "x"})
    assert (job.queue_name, job.priority, job.max_attempts, job.timeout) == ("send", 5, 9, 120)
    assert job.expires_at == job.enqueued_at + timedelta(minutes=1)
    assert async_to_sync(aenqueue)(send.bind(8)).args == [8]
    assert (call.call(), async_to_sync(call.acall)()) == ("7x", "7x")
    result = send.bind(9).enqueue()
    assert result.job == Job.objects.latest("pk")
    assert async_to_sync(send.bind(10).aenqueue)().args == [10]


def test_a_call_has_its_arguments() -> None:
    with pytest.raises(TypeError, match=r"enqueue\(call\) takes nothing else"):
        enqueue(send.bind(7), 8)  # type: ignore[call-arg]


# -- ``BEFORE_ENQUEUE``: each call passes the hooks before it is checked, whichever way it is enqueued


@pytest.fixture(autouse=True)
def tenant() -> Iterator[None]:
    CALLS.clear()
    token = hooks.TENANT.set("acme")
    yield
    hooks.TENANT.reset(token)


def before(*names: str) -> Any:
    return override_settings(PGQUEUE={"BEFORE_ENQUEUE": [f"tests.app.hooks.{name}" for name in names]})


def add_to_batch(call: Any) -> None:
    with Batch() as batch:
        batch.add([call])
    assert batch.counts().added == 1


#: Each enqueues a call that has positional arguments only.
WAYS: dict[str, Callable[[Any], Any]] = {
    "enqueue": lambda call: enqueue(call.task, *call.args),
    "enqueue(call)": enqueue,
    "aenqueue": lambda call: async_to_sync(aenqueue)(call.task, *call.args),
    "enqueue_many": lambda call: enqueue_many([call]),
    "aenqueue_many": lambda call: async_to_sync(aenqueue_many)([call]),
    "Task.enqueue": lambda call: call.task.enqueue(*call.args),
    "Task.aenqueue": lambda call: async_to_sync(call.task.aenqueue)(*call.args),
    "BoundTask.enqueue": lambda call: call.enqueue(),
    "chain": lambda call: chain([call]),
    "Batch.add": add_to_batch,
}
in_each_way = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)


@in_each_way
def test_each_way_to_enqueue_passes_the_hooks_in_their_order(way: Callable[[Any], Any]) -> None:
    with before("tenant", "urgent"):
        way(see.bind(1))
    job = Job.objects.get()
    assert (job.metadata, job.priority) == ({"tenant": "acme", "urgent": True}, 7)
    assert [call.removesuffix(" in a transaction") for call in CALLS] == ["see(1,)"]


def test_a_hook_may_leave_a_call_as_it_is_and_comes_before_the_checks() -> None:
    with before("tenant"):
        assert enqueue(hooks.fail).metadata == {}
    with before("stranger"):
        assert enqueue(see, "too", "many").args == [5]  # type: ignore[call-arg,arg-type]
    first = enqueue(see, 1)
    with before("urgent"):
        assert enqueue(see.using(after=[first]), 2).parent_ids == [first.pk]


@pytest.mark.parametrize(("hook", "error", "words"), [
    ("confused", TypeError, r"tests\.app\.hooks\.confused has returned"),
    ("endless", RuntimeError, "Let the hook return at once for the tasks"),
    ("stranger", ValueError, "without the batch and"),
])  # fmt: skip
def test_what_a_hook_must_not_do_is_refused(hook: str, error: type[Exception], words: str) -> None:
    with before(hook), Batch() as batch, pytest.raises(error, match=words):
        batch.add([see.bind(1)])
    assert not Job.objects.exists()


def test_the_modes_of_the_test_kit_pass_them_too() -> None:
    with before("tenant"):
        with dummy_jobs():
            job = enqueue(see, 1)
            assert job.metadata == {"tenant": "acme"}
        with immediate_jobs():
            assert enqueue(see, 2).metadata == {"tenant": "acme"}


def test_the_row_of_a_payload_is_the_argument() -> None:
    order = Order.objects.create(total=5)
    with before("tenant"):
        job = enqueue(send_receipt, Receipt(order=order, email="a@b.c"))
    assert job.metadata == {"kind": "receipt", "tenant": "acme"}
    assert Receipt.objects.count() == 1


def test_an_exception_refuses_all_calls() -> None:
    hooks.TENANT.set("")
    with before("tenant"):
        with pytest.raises(PermissionError, match="no tenant"):
            enqueue(see, 1)
        with pytest.raises(PermissionError) as info:
            enqueue_many([hooks.fail.bind(), see.bind(1)])
    assert info.value.__notes__ == ["in item 1 of enqueue_many()"]
    assert not Job.objects.exists()


def test_a_hook_may_enqueue_for_each_call() -> None:
    with before("audits"), transaction.atomic():
        enqueue(see, 1)
    paths = Job.objects.order_by("pk").values_list("task_path", flat=True)
    assert list(paths) == [hooks.audit.module_path, see.module_path]


def test_more_tasks_than_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("django_pgqueue.tasks.call._MOST_CHECKED", 2)
    with before("tenant"):
        jobs = enqueue_many(see.bind(number) for number in range(5))
    assert [job.args for job in Job.objects.filter(pk__in=jobs.ids).order_by("pk")] == [[n] for n in range(5)]


# -- schedules


DAILY = {"daily": {"task": "tests.app.hooks.see", "every": 86400, "args": [1]}}


def schedule_with(*names: str) -> Schedule:
    paths = [f"tests.app.hooks.{name}" for name in names]
    with override_settings(PGQUEUE={"BEFORE_ENQUEUE": paths, "SCHEDULES": DAILY}):
        synchronize("default")
    return Schedule.objects.get(pk="daily")


def test_the_call_of_a_schedule_passes_them_when_it_is_stored() -> None:
    policy = schedule_with("tenant", "urgent").policy
    assert policy is not None
    assert policy["metadata"] == {"tenant": "acme", "urgent": True}
    with before("tenant", "urgent"):
        job = Schedule.objects.get(pk="daily").enqueue()
    assert job.metadata["tenant"] == "acme"
    assert (job.priority, job.args) == (7, [1])


def test_a_schedule_that_a_hook_refuses_does_not_fire(caplog: pytest.LogCaptureFixture) -> None:
    hooks.TENANT.set("")
    with caplog.at_level(logging.WARNING, "django_pgqueue"):
        row = schedule_with("tenant")
    assert row.policy is not None
    assert row.policy["problem"] == "no tenant"
    with before("tenant"), pytest.raises(PermissionError):
        row.enqueue()
    with before("stranger"), pytest.raises(ValueError, match="has changed the task, the arguments"):
        row.enqueue()
    assert not Job.objects.exists()
