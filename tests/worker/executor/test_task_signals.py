"""Django's task signals are sent if there is a receiver, have correct values, and cannot harm the job."""

from __future__ import annotations

import logging
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from django_pgqueue import enqueue
from django_pgqueue.backend import PgQueueBackend
from django_pgqueue.compat import task_finished, task_started
from django_pgqueue.models import Job
from django_pgqueue.worker.executor.outcomes import BadCall, BadResult
from django_pgqueue.worker.executor.task_signals import Announcer, _is_named
from tests.app import worker_tasks as tasks
from tests.app.models import Entry
from tests.support.workers import fresh, run_here

pytestmark = pytest.mark.django_db

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


def test_nobody_listens_and_nothing_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[Any] = []
    monkeypatch.setattr(f"{MODULE}._send", lambda signal, make: sent.append(signal))
    enqueue(tasks.noop)
    enqueue(tasks.raise_odd, "nul")
    run_here()
    assert sent == []


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
    for name, value in {
        "level": logging.ERROR,
        "handlers": [logging.NullHandler()],
        "propagate": False,
    }.items():
        with monkeypatch.context() as patch:
            patch.setattr(logger, name, value)
            assert _is_named(logger.name), name


def test_the_answer_is_looked_up_once_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    now, asked = 100.0, list[str]()

    def is_named(name: str) -> bool:
        asked.append(name)
        return False

    monkeypatch.setattr(f"{MODULE}.monotonic", lambda: now)
    monkeypatch.setattr(f"{MODULE}._is_named", is_named)
    announcer = Announcer()
    for now in (100.0, 100.5, 100.9, 101.0):  # noqa: B007 - the clock reads it
        announcer._look()
    assert asked == [*DJANGO_S] * 2
