"""``AROUND_ATTEMPT``: each attempt is in the context managers of the hooks, wherever and however it runs."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.core.exceptions import ImproperlyConfigured
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import override_settings

from django_pgqueue import CancelJob, RetryLater, Snooze, enqueue
from django_pgqueue.models import Job
from django_pgqueue.testing import acall_task, call_task, immediate_jobs, run_jobs
from tests.app import hooks
from tests.app.hooks import SEEN
from tests.receipts.models import Charge, Order, Receipt, Reminder
from tests.receipts.tasks import charge, remind, send
from tests.support.workers import fresh, run_due

in_transactions = pytest.mark.django_db(transaction=True)
ORDER = ["outer enters", "inner enters", "task", "inner leaves", "outer leaves"]


@pytest.fixture(autouse=True)
def _nothing_seen() -> None:
    SEEN.clear()
    hooks.RAISES.clear()


def around(*names: str) -> Any:
    return override_settings(PGQUEUE={"AROUND_ATTEMPT": [f"tests.app.hooks.{name}" for name in names]})


def attempt(task: Any, **options: Any) -> Job:
    job = enqueue(task.using(metadata={"tenant": "acme"}, **options))
    run_due(threads=1)
    return fresh(job)


def in_memory(task: Any) -> Any:
    return call_task(task.using(metadata={"tenant": "acme"}))


def in_memory_async(task: Any) -> Any:
    return async_to_sync(acall_task)(task.using(metadata={"tenant": "acme"}))


def at_once(task: Any) -> Any:
    with immediate_jobs():
        return enqueue(task.using(metadata={"tenant": "acme"})).result


def in_test(task: Any) -> Any:
    enqueue(task.using(metadata={"tenant": "acme"}))
    (ran,) = run_jobs()
    return ran.result


def in_one_process(task: Any) -> Any:
    job = enqueue(task.using(metadata={"tenant": "acme"}))
    call_command("runqueueworker", burst=True, one_process=True, verbosity=0)
    return fresh(job).result


WAYS: list[Callable[[Any], Any]] = [
    lambda task: attempt(task).result,
    in_one_process,
    in_test,
    at_once,
    in_memory,
    in_memory_async,
]


@in_transactions
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("task", [hooks.look, hooks.alook])
def test_the_first_hook_is_the_outermost(task: Any, way: Any) -> None:
    with around("outer", "Inner"):
        result = way(task)
    assert (result.partition(",")[0], SEEN) == ("acme", ORDER)


@in_transactions
def test_a_sync_hook_is_in_the_thread_of_the_task() -> None:
    with around("outer"):
        assert attempt(hooks.look).result == "acme, same thread"


@in_transactions
def test_an_async_task_has_async_and_sync_hooks() -> None:
    with around("outer", "awaited"):
        assert attempt(hooks.alook).result == "awaited"
    assert SEEN == ["outer enters", "awaited enters", "task", "awaited leaves", "outer leaves"]


@in_transactions
def test_the_transaction_of_an_atomic_task_is_inside() -> None:
    with around("outer"):
        assert attempt(hooks.look_atomic).result == "acme"
    assert SEEN == ["outer enters", "task in a transaction", "outer leaves"]


@in_transactions
def test_a_lost_lease_passes_the_hooks_of_an_atomic_task() -> None:
    with around("outer"):
        attempt(hooks.leave)
    assert SEEN == ["outer enters", "outer sees IntegrityError", "outer leaves"]


@in_transactions
@pytest.mark.parametrize(("model", "task"), [(Receipt, send), (Reminder, remind), (Charge, charge)])
def test_a_task_with_a_payload_has_them(model: Any, task: Any) -> None:
    order = Order.objects.create(total=5)
    with around("outer"):
        model.objects.create(order=order, email="a@b.c")
        run_due(threads=1)
        call_task(send, Receipt(order=order, email="a@b.c"))
    assert Job.objects.get().status == "done"
    assert SEEN == ["outer enters", "outer leaves"] * 2


@in_transactions
def test_a_job_in_its_own_process_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DJANGO_SETTINGS_MODULE", "tests.support.hook_settings")
    job = enqueue(hooks.look.using(metadata={"tenant": "acme"}))
    with connection.cursor() as cursor:
        cursor.execute("UPDATE pgqueue_job_live SET crash_count = 1 WHERE id = %s", [job.pk])
    run_due()
    assert fresh(job).result == "acme, same thread"


@in_transactions
@pytest.mark.parametrize("task", [hooks.fail, hooks.afail])
def test_no_hook_hides_an_exception(task: Any) -> None:
    with around("outer", "Inner"):
        job = attempt(task)
    assert (job.status, job.errors[-1]["class"]) == ("failed", "builtins.KeyError")
    assert "executor" not in job.errors[-1]["traceback"]
    assert SEEN[2:] == ["inner leaves KeyError", "outer sees KeyError", "outer leaves"]
    with around("Inner"), pytest.raises(KeyError):
        call_task(task)


@in_transactions
@pytest.mark.parametrize("place", ["enter", "exit"])
@pytest.mark.parametrize("task", [hooks.look, hooks.alook])
@pytest.mark.parametrize(
    ("error", "status"),
    [
        (lambda: ValueError("bad tenant"), "retry"),
        (lambda: RetryLater(timedelta(hours=1)), "retry"),
        (lambda: Snooze(timedelta(hours=1)), "pending"),
        (lambda: CancelJob("gone"), "cancelled"),
        (SystemExit, "retry"),
    ],
)
def test_what_a_hook_raises_counts_as_the_tasks(error: Any, status: str, task: Any, place: str) -> None:
    hooks.RAISES[place] = error
    with around("outer", "troubled"):
        job = attempt(task)
    assert job.status == status
    assert ("task" in SEEN) is (place == "exit")
    assert SEEN[-1] == "outer leaves"


@in_transactions
def test_a_hook_may_raise_something_else_than_the_task() -> None:
    hooks.RAISES["instead"] = lambda: Snooze(timedelta(hours=1))
    with around("outer", "translating"):
        assert attempt(hooks.fail).status == "pending"
    assert "outer sees Snooze" in SEEN


@in_transactions
def test_an_atomic_task_is_done_before_its_hooks_are_left(caplog: pytest.LogCaptureFixture) -> None:
    hooks.RAISES["exit"] = lambda: ValueError("too late")
    with around("outer", "troubled"):
        assert attempt(hooks.look_atomic).status == "done"
        assert "is done, and its transaction is committed, but a hook of AROUND_ATTEMPT" in caplog.text
        enqueue(hooks.look_atomic)
        with pytest.raises(ValueError, match="too late"):
            run_jobs()
    hooks.RAISES["enter"] = hooks.RAISES["exit"]
    with around("troubled"):
        assert attempt(hooks.look_atomic).status == "retry"


@in_transactions
@pytest.mark.parametrize("task", [hooks.endure, hooks.aendure])
def test_a_timeout_leaves_the_hooks(task: Any) -> None:
    with around("outer"):
        job = attempt(task, timeout=1)
    assert job.errors[-1]["class"].endswith("TaskTimeout")
    assert SEEN == ["outer enters", "outer sees TaskTimeout", "outer leaves"]


@in_transactions
def test_a_hook_that_takes_all_the_time_leaves_none_to_the_task() -> None:
    with around("outer", "slow"):
        job = attempt(hooks.look, timeout=1)
    assert job.errors[-1]["class"].endswith("TaskTimeout")
    assert SEEN == ["outer enters", "outer sees TaskTimeout", "outer leaves"]


@in_transactions
def test_something_that_is_no_context_manager() -> None:
    with (
        around("nothing"),
        pytest.raises(TypeError, match=r"tests\.app\.hooks\.nothing has returned None, not a con"),
    ):
        call_task(hooks.look)
    with around("nothing"):
        job = attempt(hooks.alook)
    assert "Decorate it with contextlib.contextmanager" in job.errors[-1]["message"]


@in_transactions
def test_a_sync_task_has_no_async_hook() -> None:
    with around("awaited"):
        job = attempt(hooks.look)
    (error,) = job.errors
    assert (job.status, error["class"]) == ("retry", "builtins.TypeError")
    assert error["message"] == (
        "AROUND_ATTEMPT: tests.app.hooks.awaited has returned an async context manager, but "
        "tests.app.hooks.look is a sync task. Return one that has __enter__ and __exit__ as well."
    )


@in_transactions
def test_a_worker_does_not_start_without_its_hooks() -> None:
    with around("missing"):
        with pytest.raises(ImproperlyConfigured, match=r"AROUND_ATTEMPT'\] names 'tests.app.hooks.missing'"):
            run_due()
        with pytest.raises(CommandError, match="cannot be imported"):
            call_command("runqueueworker", burst=True, one_process=True, verbosity=0, skip_checks=True)
