"""``BEFORE_ENQUEUE``: each call passes the hooks before it is checked, whichever way it is enqueued."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import transaction
from django.test import override_settings

from django_pgqueue import (
    Batch,
    aenqueue,
    aenqueue_many,
    chain,
    enqueue,
    enqueue_many,
)
from django_pgqueue.compat import task_enqueued
from django_pgqueue.maintenance.schedules import synchronize
from django_pgqueue.models import Job, Schedule
from django_pgqueue.testing import dummy_jobs, immediate_jobs
from tests.app import hooks
from tests.app.hooks import CALLS, see
from tests.receipts.models import Order, Receipt
from tests.receipts.tasks import send

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _tenant() -> Iterator[None]:
    CALLS.clear()
    token = hooks.TENANT.set("acme")
    yield
    hooks.TENANT.reset(token)


def before(*names: str) -> Any:
    return override_settings(PGQUEUE={"BEFORE_ENQUEUE": [f"tests.app.hooks.{name}" for name in names]})


def add_to_batch() -> None:
    with Batch() as batch:
        batch.add([see.bind(1)])
    assert Job.objects.get().batch_id == batch.id


WAYS: dict[str, Callable[[], Any]] = {
    "enqueue": lambda: enqueue(see, 1),
    "enqueue(call)": lambda: enqueue(see.bind(1)),
    "aenqueue": lambda: async_to_sync(aenqueue)(see, 1),
    "enqueue_many": lambda: enqueue_many([see.bind(1)]),
    "aenqueue_many": lambda: async_to_sync(aenqueue_many)([see.bind(1)]),
    "Task.enqueue": lambda: see.enqueue(1),
    "Task.aenqueue": lambda: async_to_sync(see.aenqueue)(1),
    "BoundTask.enqueue": lambda: see.bind(1).enqueue(),
    "chain": lambda: chain([see.bind(1)]),
    "Batch.add": add_to_batch,
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_each_way_to_enqueue_passes_the_hooks_in_their_order(way: Callable[[], Any]) -> None:
    with before("tenant", "urgent"):
        way()
    job = Job.objects.get()
    assert (job.metadata, job.priority) == ({"tenant": "acme", "urgent": True}, 7)
    assert [call.removesuffix(" in a transaction") for call in CALLS] == ["see(1,)"]


def test_the_modes_of_the_test_kit_pass_them_too() -> None:
    with before("tenant"):
        with dummy_jobs():
            job = enqueue(see, 1)
            assert job.metadata == {"tenant": "acme"}
        with immediate_jobs():
            assert enqueue(see, 2).metadata == {"tenant": "acme"}


def test_a_result_and_a_signal_have_the_call_that_was_enqueued() -> None:
    heard: list[Any] = []

    def hear(task_result: Any, **_: Any) -> None:
        heard.append(task_result.task.priority)

    task_enqueued.connect(hear)
    try:
        with before("urgent"):
            assert see.enqueue(1).task.priority == 7
            enqueue(see, 1)
            enqueue_many([see.bind(1)])
    finally:
        task_enqueued.disconnect(hear)
    assert heard == [7, 7, 7]


def test_the_row_of_a_payload_is_the_argument() -> None:
    order = Order.objects.create(total=5)
    with before("tenant"):
        job = enqueue(send, Receipt(order=order, email="a@b.c"))
    assert job.metadata == {"kind": "receipt", "tenant": "acme"}
    assert Receipt.objects.count() == 1


def test_none_leaves_a_call_as_it_is() -> None:
    with before("tenant"):
        assert enqueue(hooks.fail).metadata == {}


def test_the_hooks_come_before_the_checks() -> None:
    with before("stranger"):
        assert enqueue(see, "too", "many").args == [5]  # type: ignore[call-arg,arg-type]


def test_an_exception_refuses_all_calls() -> None:
    hooks.TENANT.set("")
    with before("tenant"):
        with pytest.raises(PermissionError, match="no tenant"):
            enqueue(see, 1)
        with pytest.raises(PermissionError) as info:
            enqueue_many([hooks.fail.bind(), see.bind(1)])
    assert info.value.__notes__ == ["in item 1 of enqueue_many()"]
    assert not Job.objects.exists()


def test_what_is_no_call_is_refused() -> None:
    with (
        before("confused"),
        pytest.raises(TypeError, match=r"tests\.app\.hooks\.confused has returned"),
    ):
        enqueue(see, 1)


def test_a_batch_and_parents_are_not_lost() -> None:
    with (
        before("stranger"),
        Batch() as batch,
        pytest.raises(ValueError, match="without the batch and"),
    ):
        batch.add([see.bind(1)])
    first = enqueue(see, 1)
    with before("urgent"):
        second = enqueue(see.using(after=[first]), 2)
    assert second.parent_ids == [first.pk]


def test_a_hook_that_enqueues_for_each_call_is_told() -> None:
    with before("endless"), pytest.raises(RuntimeError, match="Let the hook return at once for the tasks"):
        enqueue(see, 1)
    assert not Job.objects.exists()
    with before("audits"), transaction.atomic():
        enqueue(see, 1)
    assert list(Job.objects.order_by("pk").values_list("task_path", flat=True)) == [
        hooks.audit.module_path,
        see.module_path,
    ]


def test_more_tasks_than_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("django_pgqueue.tasks.call._MOST_CHECKED", 2)
    with before("tenant"):
        jobs = enqueue_many(see.bind(number) for number in range(5))
    assert [job.args for job in Job.objects.filter(pk__in=jobs.ids).order_by("pk")] == [[n] for n in range(5)]


# -- schedules


DAILY = {"daily": {"task": "tests.app.hooks.see", "every": 86400, "args": [1]}}


def stored(*names: str) -> Schedule:
    paths = [f"tests.app.hooks.{name}" for name in names]
    with override_settings(PGQUEUE={"BEFORE_ENQUEUE": paths, "SCHEDULES": DAILY}):
        synchronize("default")
    return Schedule.objects.get(pk="daily")


def test_the_call_of_a_schedule_passes_them_when_it_is_stored() -> None:
    policy = stored("tenant", "urgent").policy
    assert policy is not None
    assert policy["metadata"] == {"tenant": "acme", "urgent": True}
    with before("tenant", "urgent"):
        job = Schedule.objects.get(pk="daily").enqueue()
    assert job.metadata["tenant"] == "acme"
    assert (job.priority, job.args) == (7, [1])


def test_a_schedule_that_a_hook_refuses_does_not_fire(caplog: pytest.LogCaptureFixture) -> None:
    hooks.TENANT.set("")
    with caplog.at_level(logging.WARNING, "django_pgqueue"):
        row = stored("tenant")
    assert row.policy is not None
    assert row.policy["problem"] == "no tenant"
    with before("tenant"), pytest.raises(PermissionError):
        row.enqueue()
    with (
        before("stranger"),
        pytest.raises(ValueError, match="has changed the task, the arguments"),
    ):
        row.enqueue()
    assert not Job.objects.exists()
