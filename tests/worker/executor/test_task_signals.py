"""Django's task signals are sent if there is a receiver, have correct values, and cannot harm the job."""

from __future__ import annotations

import logging
import sys
import traceback
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from django_pgqueue import enqueue
from django_pgqueue.backend import PgQueueBackend
from django_pgqueue.compat import TaskResultStatus, task_finished, task_started
from django_pgqueue.models import Job
from django_pgqueue.worker.executor.outcomes import BadCall, BadResult
from django_pgqueue.worker.executor.task_signals import Announcer, _is_named
from tests.app import worker_tasks as tasks
from tests.app.models import Entry
from tests.support.workers import fresh, run_due

pytestmark = pytest.mark.django_db(transaction=True)

READY, RUNNING = TaskResultStatus.READY, TaskResultStatus.RUNNING
SUCCESSFUL, FAILED = TaskResultStatus.SUCCESSFUL, TaskResultStatus.FAILED


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Disable Django's own log lines, so that only receivers matter."""
    monkeypatch.setattr(logging.getLogger("django.tasks"), "disabled", True)
    monkeypatch.setattr(logging.getLogger("django_tasks"), "disabled", True)


@pytest.fixture
def heard() -> Iterator[list[tuple[str, Any]]]:
    """What a receiver of both signals gets."""
    news: list[tuple[str, Any]] = []

    def started(sender: Any, task_result: Any, **kwargs: Any) -> None:
        assert sender is PgQueueBackend
        news.append(("started", task_result))

    def finished(sender: Any, task_result: Any, **kwargs: Any) -> None:
        assert sender is PgQueueBackend
        news.append(("finished", task_result))
        news.append(("exception", sys.exc_info()[1]))

    task_started.connect(started)
    task_finished.connect(finished)
    yield news
    task_started.disconnect(started)
    task_finished.disconnect(finished)


def results(heard: list[tuple[str, Any]]) -> list[tuple[str, Any]]:
    return [(word, result.status) for word, result in heard if word != "exception"]


@pytest.mark.parametrize("task", [tasks.add, tasks.effect], ids=["plain", "atomic"])
def test_a_job_that_succeeds(task: Any, heard: list[tuple[str, Any]]) -> None:
    job = enqueue(tasks.add, 1, 2) if task is tasks.add else enqueue(tasks.effect, "a")
    run_due()
    assert results(heard) == [("started", RUNNING), ("finished", SUCCESSFUL)]
    result = heard[1][1]
    assert (result.id, result.return_value) == (str(job.pk), fresh(job).result)
    assert result.finished_at is not None
    assert heard[2] == ("exception", None)


def test_an_async_job_that_succeeds(heard: list[tuple[str, Any]]) -> None:
    enqueue(tasks.aid_everywhere)
    run_due()
    assert results(heard) == [("started", RUNNING), ("finished", SUCCESSFUL)]


@pytest.mark.parametrize("is_async", [False, True])
def test_a_job_that_fails(is_async: bool, heard: list[tuple[str, Any]]) -> None:
    enqueue(tasks.afail, "oops") if is_async else enqueue(tasks.raise_odd, "nul")
    run_due()
    assert results(heard) == [("started", RUNNING), ("finished", FAILED)]
    result, error = heard[1][1], heard[2][1]
    assert isinstance(error, ValueError)
    assert result.errors[-1].exception_class is ValueError
    assert (result.attempts, result.finished_at is not None) == (1, True)


def test_each_failed_attempt_is_told(heard: list[tuple[str, Any]]) -> None:
    enqueue(tasks.fail_once)
    run_due()
    assert [status for word, status in results(heard) if word == "finished"] == [FAILED, SUCCESSFUL]


def test_a_result_that_cannot_be_stored_is_a_failure(heard: list[tuple[str, Any]]) -> None:
    enqueue(tasks.bad_result, "set")
    run_due()
    assert results(heard) == [("started", RUNNING), ("finished", FAILED)]


def test_an_atomic_job_that_is_rolled_back_is_no_success(heard: list[tuple[str, Any]]) -> None:
    enqueue(tasks.effect, "a", then="bad result")
    run_due()
    assert results(heard) == [("started", RUNNING), ("finished", FAILED)]
    assert not Entry.objects.exists()


def test_a_receiver_that_raises_costs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    def broken(**kwargs: Any) -> None:
        raise RuntimeError("in the receiver")

    task_started.connect(broken)
    task_finished.connect(broken)
    try:
        jobs = [enqueue(tasks.noop), enqueue(tasks.raise_odd, "nul")]
        run_due()
    finally:
        task_started.disconnect(broken)
        task_finished.disconnect(broken)
    assert [fresh(job).status for job in jobs] == ["done", "failed"]
    assert caplog.text.count("of a task signal raised") == 4


def test_a_task_whose_backend_does_not_exist_here_runs_all_the_same(
    heard: list[tuple[str, Any]], caplog: pytest.LogCaptureFixture
) -> None:
    job = enqueue(tasks.noop)
    Job.objects.update(task_path="tests.app.worker_tasks.elsewhere", max_attempts=1)
    run_due()
    assert fresh(job).status == "failed"
    assert fresh(job).errors[0]["message"] == "ran"
    assert "a task signal could not be sent" in caplog.text
    assert heard == []


def test_nobody_listens_and_nothing_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[Any] = []
    monkeypatch.setattr(
        "django_pgqueue.worker.executor.task_signals._send", lambda signal, make: sent.append(signal)
    )
    enqueue(tasks.noop)
    enqueue(tasks.raise_odd, "nul")
    run_due()
    assert sent == []


@pytest.fixture
def named(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The project's logging says something about the loggers of Django's own lines."""
    for name in ("django.tasks", "django_tasks"):
        logger = logging.getLogger(name)
        monkeypatch.setattr(logger, "disabled", False)
        monkeypatch.setattr(logger, "level", logging.INFO)
        logger.manager._clear_cache()  # type: ignore[attr-defined]
    yield
    monkeypatch.undo()
    logger.manager._clear_cache()  # type: ignore[attr-defined]


def django_s_lines(caplog: pytest.LogCaptureFixture) -> list[Any]:
    return [record for record in caplog.records if record.name in ("django.tasks", "django_tasks")]


@pytest.mark.usefixtures("named")
def test_django_s_own_lines_are_written_if_the_project_asks_for_them(
    caplog: pytest.LogCaptureFixture,
) -> None:
    enqueue(tasks.add, 1, 2)
    enqueue(tasks.raise_odd, "nul")
    run_due(threads=1)
    assert [record.levelname for record in django_s_lines(caplog)] == ["INFO", "INFO", "INFO", "ERROR"]


def test_django_s_own_lines_are_dropped_if_nobody_asks_for_them(
    heard: list[tuple[str, Any]], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Also if the signals are sent, because somebody listens. What others say is not ours to drop."""
    monkeypatch.undo()
    enqueue(tasks.raise_odd, "nul")
    run_due()
    assert [word for word, _ in heard] == ["started", "finished", "exception"]
    assert django_s_lines(caplog) == []
    logging.getLogger("django.tasks").error("the task of another backend failed")
    assert len(django_s_lines(caplog)) == 1


@pytest.mark.parametrize(
    ("config", "is_named"),
    [
        ({}, False),
        ({"loggers": None}, False),
        ({"loggers": {"django": {"level": "INFO"}}}, False),
        ({"loggers": {"django.tasks": {}}}, True),
        ("not a dictionary, where LOGGING_CONFIG is a function of the project's own", False),
    ],
)
def test_what_names_a_logger(config: Any, is_named: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "django_pgqueue.worker.executor.task_signals.settings", SimpleNamespace(LOGGING=config)
    )
    assert _is_named("django.tasks") is is_named


@pytest.mark.parametrize(
    "change",
    [
        lambda logger: logger.setLevel(logging.ERROR),
        lambda logger: logger.addHandler(logging.NullHandler()),
        lambda logger: setattr(logger, "propagate", False),
    ],
    ids=["level", "handler", "propagate"],
)
def test_a_logger_may_be_configured_without_the_setting(change: Any) -> None:
    name = f"tests.{change}"
    assert not _is_named(name)
    change(logging.getLogger(name))
    assert _is_named(name)


@pytest.mark.parametrize("name", ["add", "bad_result"], ids=["BadCall", "BadResult"])
def test_receivers_see_the_exception_that_counts(name: str) -> None:
    """Not the one that wraps it, and as it was raised."""
    seen: list[Any] = []

    def receiver(**kwargs: Any) -> None:
        seen.append(sys.exc_info())

    job = enqueue(tasks.bad_result, "set")
    Job.objects.filter(pk=job.pk).update(
        task_path=f"tests.app.worker_tasks.{name}", args=[] if name == "add" else ["set"]
    )
    task_finished.connect(receiver)
    try:
        run_due()
    finally:
        task_finished.disconnect(receiver)
    ((cls, error, frames),) = seen
    assert cls.__name__ == {"add": "TypeError", "bad_result": "InvalidJSON"}[name]
    assert frames is error.__traceback__
    assert not isinstance(error.__context__, (BadCall, BadResult))
    assert "task_signals.py" not in "".join(traceback.format_tb(frames))


def test_the_answer_is_looked_up_once_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    asked: list[str] = []
    monkeypatch.setattr("django_pgqueue.worker.executor.task_signals.monotonic", lambda: now)

    def is_named(name: str) -> bool:
        asked.append(name)
        return False

    monkeypatch.setattr("django_pgqueue.worker.executor.task_signals._is_named", is_named)
    announcer = Announcer()
    for now in (100.0, 100.5, 100.9, 101.0):  # noqa: B007 - the clock reads it
        announcer._look()
    assert asked == ["django.tasks", "django_tasks"] * 2
