"""``AROUND_ATTEMPT`` and Django's task signals: each attempt is in the context managers of the hooks, and
its start and its end are sent.
"""

from __future__ import annotations

import logging
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.core.exceptions import ImproperlyConfigured
from django.core.management import CommandError, call_command
from django.test import override_settings

from django_pgqueue import CancelJob, RetryLater, Snooze, enqueue
from django_pgqueue.backend import PgQueueBackend
from django_pgqueue.compat import task_finished, task_started
from django_pgqueue.models import Job
from django_pgqueue.testing import acall_task, call_task, immediate_jobs, run_jobs
from django_pgqueue.worker.executor.outcomes import BadCall, BadResult
from django_pgqueue.worker.executor.task_signals import _is_named
from tests.app import hooks, worker_tasks as tasks
from tests.app.hooks import SEEN
from tests.app.models import Entry
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


def of_acme(task: Any) -> Any:
    return task.using(metadata={"tenant": "acme"})


def attempt(task: Any, run: Callable[[], Any] = run_here) -> Job:
    job = enqueue(of_acme(task))
    run()
    return fresh(job)


def at_once(task: Any) -> Any:
    with immediate_jobs():
        return enqueue(of_acme(task)).result


COMMAND: dict[str, Any] = {"burst": True, "one_process": True, "verbosity": 0}
WAYS = [
    pytest.param(lambda task: attempt(task, run_due).result, marks=committed, id="a worker"),
    pytest.param(
        lambda task: attempt(task, lambda: call_command("runqueueworker", **COMMAND)).result,
        marks=committed, id="one process",
    ),
    pytest.param(lambda task: attempt(task, run_jobs).result, id="a test"),
    pytest.param(at_once, id="at once"),
    pytest.param(lambda task: call_task(of_acme(task)), id="in memory"),
    pytest.param(lambda task: async_to_sync(acall_task)(of_acme(task)), id="in memory, async"),
]  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
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
            call_command("runqueueworker", skip_checks=True, **COMMAND)


# --- Django's task signals are sent if there is a receiver, have correct values, and cannot harm the job


MODULE = "django_pgqueue.worker.executor.task_signals"
DJANGO_S = "django.tasks", "django_tasks"
STARTED, DONE = ("RUNNING", None), ("SUCCESSFUL", None)


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Disable Django's own log lines, so that only receivers matter."""
    for name in DJANGO_S:
        monkeypatch.setattr(logging.getLogger(name), "disabled", True)


@contextmanager
def receiving(receiver: Callable[..., None]) -> Iterator[None]:
    task_started.connect(receiver)
    task_finished.connect(receiver)
    try:
        yield
    finally:
        task_started.disconnect(receiver)
        task_finished.disconnect(receiver)


@pytest.fixture
def heard() -> Iterator[list[tuple[Any, Any]]]:
    """The results that a receiver of both signals gets, each with what is being handled then."""
    news: list[tuple[Any, Any]] = []

    def receive(sender: Any, task_result: Any, **kwargs: Any) -> None:
        assert sender is PgQueueBackend
        news.append((task_result, sys.exc_info()))

    with receiving(receive):
        yield news


@pytest.mark.parametrize(("call", "changes", "expected"), [
    pytest.param(tasks.add.bind(1, 2), {}, [STARTED, DONE], id="sync"),
    pytest.param(tasks.aid_everywhere.bind(), {}, [STARTED, DONE], id="async"),
    pytest.param(tasks.effect.bind("a"), {}, [STARTED, DONE], id="atomic"),
    pytest.param(tasks.raise_odd.bind("nul"), {}, [STARTED, ("FAILED", "ValueError")], id="sync fails"),
    pytest.param(tasks.afail.bind("oops"), {}, [STARTED, ("FAILED", "ValueError")], id="async fails"),
    pytest.param(
        tasks.fail_once.bind(), {}, [STARTED, ("FAILED", "ValueError"), STARTED, DONE], id="each attempt"
    ),
    pytest.param(tasks.bad_result.bind("set"), {}, [STARTED, ("FAILED", "InvalidJSON")], id="bad result"),
    pytest.param(
        tasks.effect.bind("a", then="bad result"), {}, [STARTED, ("FAILED", "InvalidJSON")],
        id="rolled back",
    ),
    pytest.param(tasks.add.bind(1), {"args": []}, [STARTED, ("FAILED", "TypeError")], id="bad call"),
])  # fmt: skip
def test_receivers_get_the_result_and_the_exception_that_counts(
    call: Any, changes: Any, expected: list[tuple[str, str]], heard: list[tuple[Any, Any]]
) -> None:
    job = enqueue(call)
    Job.objects.filter(pk=job.pk).update(**changes)
    run_here()
    assert [(result.status.name, error and error.__name__) for result, (error, *_) in heard] == expected
    result, (_, error, frames) = heard[-1]
    assert (result.id, result.attempts) == (str(job.pk), len(expected) / 2)
    assert result.finished_at is not None
    if error is None:
        assert result.return_value == fresh(job).result
    else:
        assert result.errors[-1].exception_class is type(error)
        # The exception is not the one that wraps it, and as it was raised.
        assert frames is error.__traceback__
        assert not isinstance(error.__context__, (BadCall, BadResult))
        assert "task_signals.py" not in "".join(traceback.format_tb(frames))
    assert Entry.objects.exists() == (call.task is tasks.effect and error is None)


def test_a_receiver_that_raises_costs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    def broken(**kwargs: Any) -> None:
        raise RuntimeError("in the receiver")

    with receiving(broken):
        jobs = [enqueue(tasks.noop), enqueue(tasks.raise_odd, "nul")]
        run_here()
    assert [fresh(job).status for job in jobs] == ["done", "failed"]
    assert caplog.text.count("of a task signal raised") == 4


def test_a_task_whose_backend_does_not_exist_here_runs_all_the_same(
    heard: list[tuple[Any, Any]], caplog: pytest.LogCaptureFixture
) -> None:
    job = enqueue(tasks.noop)
    Job.objects.update(task_path="tests.app.worker_tasks.elsewhere", max_attempts=1)
    run_here()
    assert fresh(job).status == "failed"
    assert fresh(job).errors[0]["message"] == "ran"
    assert "a task signal could not be sent" in caplog.text
    assert heard == []


# -- Django's own lines


@pytest.fixture
def named(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The project's logging says something about the loggers of Django's own lines."""
    for name in DJANGO_S:
        logger = logging.getLogger(name)
        monkeypatch.setattr(logger, "disabled", False)
        monkeypatch.setattr(logger, "level", logging.INFO)
        logger.manager._clear_cache()  # type: ignore[attr-defined]
    yield
    monkeypatch.undo()
    logger.manager._clear_cache()  # type: ignore[attr-defined]


def django_s_lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.levelname for record in caplog.records if record.name in DJANGO_S]


@pytest.mark.usefixtures("named")
def test_django_s_own_lines_are_written_if_the_project_asks_for_them(
    caplog: pytest.LogCaptureFixture,
) -> None:
    enqueue(tasks.add, 1, 2)
    enqueue(tasks.raise_odd, "nul")
    run_here()
    assert django_s_lines(caplog) == ["INFO", "INFO", "INFO", "ERROR"]


def test_django_s_own_lines_are_dropped_if_nobody_asks_for_them(
    heard: list[tuple[Any, Any]], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Also if the signals are sent, because somebody listens. What others say is not ours to drop."""
    monkeypatch.undo()
    enqueue(tasks.raise_odd, "nul")
    run_here()
    assert (len(heard), django_s_lines(caplog)) == (2, [])
    logging.getLogger("django.tasks").error("the task of another backend failed")
    assert django_s_lines(caplog) == ["ERROR"]


def test_what_says_something_about_a_logger(monkeypatch: pytest.MonkeyPatch) -> None:
    # LOGGING is no dictionary where LOGGING_CONFIG is a function of the project's own.
    silent: list[Any] = [{}, {"loggers": None}, {"loggers": {"django": {"level": "INFO"}}}, "no dictionary"]
    for config in (*silent, {"loggers": {"django.tasks": {}}}):
        monkeypatch.setattr(f"{MODULE}.settings", SimpleNamespace(LOGGING=config))
        assert _is_named("django.tasks") is (config not in silent)
    # A logger may be configured without the setting.
    logger = logging.getLogger("tests.signals")
    assert not _is_named(logger.name)
    named: dict[str, Any] = {"level": logging.ERROR, "handlers": [logging.NullHandler()], "propagate": False}
    for name, value in named.items():
        with monkeypatch.context() as patch:
            patch.setattr(logger, name, value)
            assert _is_named(logger.name), name
