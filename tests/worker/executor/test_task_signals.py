"""Django's task signals are sent if there is a receiver, have correct values, and cannot harm the job."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from django_pgqueue import enqueue
from django_pgqueue.backend import PgQueueBackend
from django_pgqueue.compat import TaskResultStatus, task_finished, task_started
from django_pgqueue.models import Job
from django_pgqueue.worker.executor.task_signals import Announcer, _is_heard
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
    run_due()
    assert sent == []
    enqueue(tasks.raise_odd, "nul")
    run_due()
    assert sent == [task_finished]


def test_a_line_is_heard_where_a_handler_would_write_it() -> None:
    logger = logging.Logger("alone", logging.INFO)
    assert not _is_heard(logger)
    handler = logging.StreamHandler()
    handler.setLevel(logging.ERROR)
    logger.addHandler(handler)
    assert not _is_heard(logger)
    handler.setLevel(logging.INFO)
    assert _is_heard(logger)
    handler.addFilter(lambda record: False)
    assert not _is_heard(logger)
    child = logging.Logger("child", logging.INFO)
    child.parent = logger
    handler.filters.clear()
    assert _is_heard(child)
    child.propagate = False
    assert not _is_heard(child)


def test_the_answer_is_looked_up_once_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    asked: list[str] = []
    monkeypatch.setattr("django_pgqueue.worker.executor.task_signals.monotonic", lambda: now)

    def is_heard(logger: logging.Logger) -> bool:
        asked.append(logger.name)
        return False

    monkeypatch.setattr("django_pgqueue.worker.executor.task_signals._is_heard", is_heard)
    announcer = Announcer()
    for now in (100.0, 100.5, 100.9, 101.0):  # noqa: B007 - the clock reads it
        announcer._look()
    assert asked == ["django.tasks", "django_tasks"] * 2
