"""The logs of a job are kept with it if its task or its queue asks for that, within their bounds."""

from __future__ import annotations

import io
import logging
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from django_pgqueue import enqueue, retry
from django_pgqueue.jobs.current import RUNNING
from django_pgqueue.worker.executor.running_job import _HANDLER, LogCapture
from tests.app import context_tasks as tasks
from tests.support.jobs import sql
from tests.support.workers import fresh, ran, run_due, run_here

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _levels() -> Iterator[None]:
    """The logger of the tasks lets INFO through, as LOGGING of a project would."""
    tasks.logger.setLevel(logging.INFO)
    yield
    tasks.logger.setLevel(logging.NOTSET)
    logging.root.removeHandler(_HANDLER)


def messages(job: Any) -> list[list[str]]:
    return [[line["message"] for line in each["lines"]] for each in fresh(job).logs or []]


def attempts(job: Any) -> list[int]:
    return [entry["attempt"] for entry in fresh(job).logs or []]


def test_lines_are_kept_in_their_order_and_a_process_without_any_has_no_handler() -> None:
    assert ran(tasks.log_never.bind()).logs is None
    assert _HANDLER not in logging.root.handlers
    job = ran(tasks.log.bind(2))
    assert _HANDLER in logging.root.handlers
    (entry,) = job.logs or []
    assert (entry["attempt"], set(entry)) == (1, {"attempt", "lines"})
    assert [set(line) for line in entry["lines"]] == [{"at", "level", "logger", "message"}] * 2
    assert messages(job) == [["line 0", "line 1"]]
    assert (entry["lines"][0]["level"], entry["lines"][0]["logger"]) == ("INFO", "tests.shop")


def test_each_attempt_has_its_own_with_tracebacks_and_from_its_level_on() -> None:
    job = ran(tasks.fail_loudly.bind())
    assert job.status == "failed"
    (first,), (second,) = messages(job)
    assert first.startswith("it is about to fail in attempt 1\nTraceback (most recent call last)")
    assert first.endswith("ValueError: a detail")
    assert second.startswith("it is about to fail in attempt 2")
    retry(job)
    assert attempts(job) == [1, 2]
    run_here()
    assert attempts(job) == [1, 2, 3, 4]


@pytest.mark.parametrize("keep", [1, 2])
def test_the_first_and_the_last_attempts_are_kept(keep: int, settings: Any) -> None:
    settings.PGQUEUE = {"KEEP_ERRORS": keep}
    job = enqueue(tasks.fail_loudly.with_values({"max_attempts": 6}))
    run_here()
    assert attempts(job) == [*range(1, keep + 1), *range(7 - keep, 7)]


@pytest.mark.django_db(transaction=True)
def test_jobs_of_all_kinds_at_the_same_time_do_not_mix() -> None:
    jobs = [enqueue(tasks.log, 3, f"{number} %d") for number in range(8)]
    atomic, on_loop = enqueue(tasks.log_atomic), enqueue(tasks.alog)
    run_due(threads=4)
    for number, job in enumerate(jobs):
        assert messages(job) == [[f"{number} {line}" for line in range(3)]]
    assert messages(atomic) == [["inside the transaction"]]
    assert messages(on_loop) == [["on the loop", "in a thread"]]


ASKS: list[Any] = [True, {"default": "INFO"}, {"*": "INFO"}]
ASKS_NOT: list[Any] = [False, "WARNING", {"*": "INFO", "default": False}, {"other": "INFO"}]


@pytest.mark.parametrize("given", [*ASKS, *ASKS_NOT])
def test_whether_a_queue_asks_for_it_in_the_settings(given: Any, settings: Any) -> None:
    settings.PGQUEUE = {"CAPTURE_LOGS": given}
    job = ran(tasks.log_by_queue.bind())
    assert (attempts(job), job.logs is None) == (([1], False) if given in ASKS else ([], True))
    assert ran(tasks.log_never.bind()).logs is None


def test_lines_that_do_not_fit_are_left_out_in_the_middle(settings: Any) -> None:
    settings.PGQUEUE = {"LOG_LINES": 4}
    job = ran(tasks.log.bind(10))
    assert messages(job) == [["line 0", "line 1", "line 8", "line 9"]]
    (entry,) = job.logs or []
    assert (entry["left_out"], entry["after"]) == (6, 2)


@pytest.mark.parametrize(("message", "count"), [("x" * 100_000 + "%d", 5), ("ä%d", 100), ("a\0\ud800%d", 3)])
def test_the_size_is_bounded_whatever_is_logged(message: str, count: int) -> None:
    log = LogCapture(logging.INFO, 1000, 4000)
    for number in range(count):
        log.add(logging.LogRecord("n" * 500, logging.INFO, "", 0, message, (number,), None))
    kept: Any = log.as_json(1)
    assert len(kept.encode()) < 4000 + 600
    sql("SELECT %s::jsonb", kept)  # the server accepts it


def test_a_bad_record_does_not_harm_the_task(monkeypatch: pytest.MonkeyPatch) -> None:
    printed = io.StringIO()
    monkeypatch.setattr(sys, "stderr", printed)
    log = LogCapture(logging.INFO, 10, 1000)
    running: Any = SimpleNamespace(log=log)
    token = RUNNING.set(running)
    try:
        _HANDLER.handle(logging.LogRecord("shop", logging.INFO, "", 0, "no place", (1,), None))
    finally:
        RUNNING.reset(token)
    assert log.as_json(1) is None
    assert "not all arguments converted" in printed.getvalue()


def test_a_warning_that_nobody_else_prints_is_still_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python prints warnings to standard error if there is no handler at all."""
    printed = io.StringIO()
    monkeypatch.setattr(sys, "stderr", printed)
    monkeypatch.setattr(logging.root, "handlers", [_HANDLER])
    logging.getLogger("lonely").warning("look at me")
    assert printed.getvalue() == "look at me\n"
    quiet = logging.getLogger("lonely.not")
    quiet.addHandler(logging.NullHandler())
    quiet.warning("I have a handler")
    assert printed.getvalue() == "look at me\n"
