"""``AROUND_ATTEMPT``: each attempt is in the context managers of the hooks, wherever and however it runs."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.core.exceptions import ImproperlyConfigured
from django.core.management import CommandError, call_command
from django.test import override_settings

from django_pgqueue import CancelJob, RetryLater, Snooze, enqueue
from django_pgqueue.models import Job
from django_pgqueue.testing import acall_task, call_task, immediate_jobs, run_jobs
from tests.app import hooks
from tests.app.hooks import SEEN
from tests.receipts.models import Charge, Order, Receipt, Reminder
from tests.receipts.tasks import charge, remind, send
from tests.support.workers import fresh, make_producer, run_due, run_here

pytestmark = pytest.mark.django_db

committed = pytest.mark.django_db(transaction=True)
OUTER, INNER = ["outer enters", "outer leaves"], ["inner enters", "inner leaves"]


@pytest.fixture(autouse=True)
def _nothing_seen() -> None:
    SEEN.clear()
    hooks.RAISES.clear()


def around(*names: str) -> Any:
    return override_settings(PGQUEUE={"AROUND_ATTEMPT": [f"tests.app.hooks.{name}" for name in names]})


def seen() -> list[str]:
    """Return what was seen, in this transaction or outside of one."""
    return [what.removesuffix(" in a transaction") for what in SEEN]


def attempt(task: Any, run: Callable[[], Any] = run_here) -> Job:
    job = enqueue(task.using(metadata={"tenant": "acme"}))
    run()
    return fresh(job)


def in_a_worker(task: Any) -> Any:
    return attempt(task, run_due).result


def in_one_process(task: Any) -> Any:
    command = {"burst": True, "one_process": True, "verbosity": 0}
    return attempt(task, lambda: call_command("runqueueworker", **command)).result


def in_memory(task: Any) -> Any:
    return call_task(task.using(metadata={"tenant": "acme"}))


def in_memory_async(task: Any) -> Any:
    return async_to_sync(acall_task)(task.using(metadata={"tenant": "acme"}))


def at_once(task: Any) -> Any:
    with immediate_jobs():
        return enqueue(task.using(metadata={"tenant": "acme"})).result


def in_test(task: Any) -> Any:
    return attempt(task, run_jobs).result


@pytest.mark.parametrize("way", [
    pytest.param(in_a_worker, marks=committed), pytest.param(in_one_process, marks=committed), in_test,
    at_once, in_memory, in_memory_async,
])  # fmt: skip
def test_the_first_hook_is_the_outermost_and_in_the_thread_of_a_sync_task(way: Any) -> None:
    for task, result in ((hooks.look, "acme, same thread"), (hooks.alook, "acme")):
        SEEN.clear()
        with around("outer", "Inner"):
            assert way(task) == result
        assert seen() == [OUTER[0], INNER[0], "task", INNER[1], OUTER[1]]


def test_an_async_task_has_async_and_sync_hooks_and_a_sync_task_only_these() -> None:
    with around("outer", "awaited"):
        assert attempt(hooks.alook).result == "awaited"
    assert seen() == [OUTER[0], "awaited enters", "task", "awaited leaves", OUTER[1]]
    with around("awaited"):
        job = attempt(hooks.look)
    (error,) = job.errors
    assert (job.status, error["class"]) == ("retry", "builtins.TypeError")
    assert error["message"] == (
        "AROUND_ATTEMPT: tests.app.hooks.awaited has returned an async context manager, but "
        "tests.app.hooks.look is a sync task. Return one that has __enter__ and __exit__ as well."
    )


@committed
def test_the_transaction_of_an_atomic_task_is_inside_of_the_hooks() -> None:
    with around("outer"):
        assert attempt(hooks.look_atomic).result == "acme"
        assert [OUTER[0], "task in a transaction", OUTER[1]] == SEEN
        SEEN.clear()
        attempt(hooks.leave)  # it loses its lease
    assert [OUTER[0], "outer sees IntegrityError", OUTER[1]] == SEEN


@pytest.mark.parametrize(("model", "task"), [(Receipt, send), (Reminder, remind), (Charge, charge)])
def test_a_task_with_a_payload_has_them(model: Any, task: Any) -> None:
    order = Order.objects.create(total=5)
    with around("outer"):
        model.objects.create(order=order, email="a@b.c")
        run_here()
        call_task(send, Receipt(order=order, email="a@b.c"))
    assert Job.objects.get().status == "done"
    assert seen() == OUTER * 2


@pytest.mark.parametrize("task", [hooks.fail, hooks.afail])
def test_no_hook_hides_an_exception(task: Any) -> None:
    with around("outer", "Inner"):
        job = attempt(task)
    assert (job.status, job.errors[-1]["class"]) == ("failed", "builtins.KeyError")
    assert "executor" not in job.errors[-1]["traceback"]
    assert seen()[2:] == ["inner leaves KeyError", "outer sees KeyError", OUTER[1]]
    with around("Inner"), pytest.raises(KeyError):
        call_task(task)


@pytest.mark.parametrize("place", ["enter", "exit"])
@pytest.mark.parametrize("task", [hooks.look, hooks.alook])
@pytest.mark.parametrize(("error", "status"), [
    (lambda: ValueError("bad tenant"), "retry"), (lambda: RetryLater(timedelta(hours=1)), "retry"),
    (lambda: Snooze(timedelta(hours=1)), "pending"), (lambda: CancelJob("gone"), "cancelled"),
    (SystemExit, "retry"),
])  # fmt: skip
def test_what_a_hook_raises_counts_as_the_tasks(error: Any, status: str, task: Any, place: str) -> None:
    hooks.RAISES[place] = error
    with around("outer", "troubled"):
        assert attempt(task).status == status
    assert ("task" in seen()) is (place == "exit")
    assert seen()[-1] == OUTER[1]


def test_a_hook_may_raise_something_else_than_the_task() -> None:
    hooks.RAISES["instead"] = lambda: Snooze(timedelta(hours=1))
    with around("outer", "translating"):
        assert attempt(hooks.fail).status == "pending"
    assert "outer sees Snooze" in SEEN


@committed
def test_an_atomic_task_is_done_before_its_hooks_are_left(caplog: pytest.LogCaptureFixture) -> None:
    hooks.RAISES["exit"] = lambda: ValueError("too late")
    with around("outer", "troubled"):
        assert attempt(hooks.look_atomic, run_due).status == "done"
        assert "is done, and its transaction is committed, but a hook of AROUND_ATTEMPT" in caplog.text
        enqueue(hooks.look_atomic)
        with pytest.raises(ValueError, match="too late"):
            run_jobs()
    hooks.RAISES["enter"] = hooks.RAISES["exit"]
    with around("troubled"):
        assert attempt(hooks.look_atomic, run_due).status == "retry"


@committed
@pytest.mark.parametrize(
    ("names", "tasks"),
    [(["outer"], [hooks.endure, hooks.aendure]), (["outer", "slow"], [hooks.look])],
    ids=["the task takes too long", "a hook leaves no time to the task"],
)
def test_a_timeout_leaves_the_hooks(names: list[str], tasks: list[Any]) -> None:
    with around(*names):
        jobs = [enqueue(task.using(timeout=1)) for task in tasks]
        run_due()
    assert all(fresh(job).errors[-1]["class"].endswith("TaskTimeout") for job in jobs)
    assert sorted(SEEN) == sorted([*OUTER, "outer sees TaskTimeout"] * len(tasks))


def test_something_that_is_no_context_manager() -> None:
    with (
        around("nothing"),
        pytest.raises(TypeError, match=r"tests\.app\.hooks\.nothing has returned None, not a con"),
    ):
        call_task(hooks.look)
    with around("nothing"):
        job = attempt(hooks.alook)
    assert "Decorate it with contextlib.contextmanager" in job.errors[-1]["message"]


@committed
def test_a_worker_does_not_start_without_its_hooks() -> None:
    with around("missing"):
        with pytest.raises(ImproperlyConfigured, match=r"AROUND_ATTEMPT'\] names 'tests.app.hooks.missing'"):
            make_producer()
        with pytest.raises(CommandError, match="cannot be imported"):
            call_command("runqueueworker", burst=True, one_process=True, verbosity=0, skip_checks=True)
