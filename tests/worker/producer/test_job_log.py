"""The line of each job: one for each attempt, which says how it went, why, and when it runs again."""

from __future__ import annotations

import gc
import json
import logging
import re
import traceback
from datetime import UTC, datetime
from typing import Any

import pytest
from django.db import connection

from django_pgqueue import enqueue
from django_pgqueue.jobs.finish import Outcome
from django_pgqueue.models import Job
from django_pgqueue.worker.executor.errors import error_entry
from django_pgqueue.worker.executor.outcomes import Result
from django_pgqueue.worker.producer.reporter import Reporter, log_job
from tests.app import deadly_tasks as deadly
from tests.app import worker_tasks as tasks
from tests.support.rows import claimed
from tests.support.workers import fresh, run_due, until, working


def lines(caplog: pytest.LogCaptureFixture) -> list[Any]:
    return [record for record in caplog.records if record.name == "django_pgqueue.job"]


def warnings(caplog: pytest.LogCaptureFixture) -> list[Any]:
    """Of all loggers."""
    return [record for record in caplog.records if record.levelno >= logging.WARNING]


def printed(record: logging.LogRecord) -> str:
    """The exception as a handler prints it."""
    assert record.exc_info is not None
    return logging.Formatter().formatException(record.exc_info)


def enqueue_isolated(task: Any, *args: Any) -> Job:
    job: Job = enqueue(task, *args)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE pgqueue_job_live SET crash_count = 1 WHERE id = %s", [job.pk])
    return job


@pytest.fixture(autouse=True)
def _level(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "django_pgqueue.job")


# -- how it went


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("call", "level", "kind", "words", "attempt"),
    [
        (tasks.add.bind(1, 2), "INFO", "done", "done", "1 of 5"),
        (tasks.effect.bind("a"), "INFO", "done", "done", "1 of 2"),
        (tasks.aid_everywhere.bind(), "INFO", "done", "done", "1 of 5"),
        (tasks.raise_odd.bind("nul"), "ERROR", "failed", "failed", "1 of 1"),
        (tasks.bad_result.bind("set"), "ERROR", "failed", "failed", "1 of 5"),
        (tasks.slow_backoff.bind(), "WARNING", "retry", "failed; it runs again in WHEN", "1 of 3"),
        (tasks.snooze.bind(60), "INFO", "snooze", "snoozed; it runs again in WHEN", "1 of 5"),
        (tasks.cancel_itself.bind("why"), "INFO", "cancelled", "cancelled", "1 of 5"),
    ],
    ids=lambda value: value.task.name if hasattr(value, "task") else None,
)
def test_each_outcome_is_one_line(
    call: Any, level: str, kind: str, words: str, attempt: str, caplog: pytest.LogCaptureFixture
) -> None:
    job = enqueue(call.task.using(queue_name="mail"), *call.args)
    run_due()
    (record,) = lines(caplog)
    assert record.levelname == level
    message = re.sub(r"in [\d.]+ s, at [-\d]+ [:\d]+ UTC", "in WHEN", record.getMessage())
    assert message.startswith(
        f"job {job.pk} {call.task.module_path} {words} (queue mail, attempt {attempt}, waited "
    )
    assert (record.job_id, record.task_path, record.queue_name) == (job.pk, call.task.module_path, "mail")
    assert (f"{record.attempt} of {record.max_attempts}", record.outcome) == (attempt, kind)
    assert 0 <= record.waited < 20
    assert 0 <= record.ran < 20
    json.dumps({name: getattr(record, name) for name in ("job_id", "queue_name", "attempt", "waited", "ran")})
    if kind == "cancelled":
        assert record.getMessage().endswith("): why\\x00")


@pytest.mark.django_db(transaction=True)
def test_a_lost_lease_is_told_as_such(caplog: pytest.LogCaptureFixture) -> None:
    job = enqueue(tasks.lose_own_lease)
    run_due(max_jobs=1)
    assert fresh(job).status == "pending"
    (record,) = lines(caplog)
    assert (record.levelname, record.outcome) == ("WARNING", "lost")
    assert f"job {job.pk} {job.task_path} lost its lease (queue" in record.getMessage()
    assert f"job {job.pk}: the lease was lost, so its outcome (done) was refused" in caplog.text


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(("call", "why"), [("fail", ": ValueError: broken"), ("snooze", "")])
def test_race_an_attempt_that_is_not_repeated_because_of_a_cancel_is_told_as_cancelled(
    call: str, why: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request comes between the end of the run and its report."""
    job = enqueue(tasks.fail) if call == "fail" else enqueue(tasks.snooze, 60)
    statement = Reporter.statement

    def cancelled_before(self: Reporter) -> Any:
        Job.objects.filter(pk=job.pk).cancel()
        return statement(self)

    monkeypatch.setattr(Reporter, "statement", cancelled_before)
    run_due()
    assert fresh(job).status == "cancelled"
    (record,) = lines(caplog)
    assert (record.levelname, record.outcome) == ("INFO", "cancelled")
    assert f"job {job.pk} {job.task_path} cancelled (queue" in record.getMessage()
    assert record.getMessage().endswith(f" s){why}")
    assert not hasattr(record, "next_run")


@pytest.mark.django_db(transaction=True)
def test_the_wait_is_from_due_to_start(caplog: pytest.LogCaptureFixture) -> None:
    enqueue(tasks.noop)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE pgqueue_job_live SET run_after = now() - interval '100 seconds'")
    run_due()
    (record,) = lines(caplog)
    assert 100 <= record.waited < 120
    assert Job.objects.get().status == "done"


def test_attempts_are_counted_as_the_budget_counts_them(caplog: pytest.LogCaptureFixture) -> None:
    log_job(Result(claimed(attempts=7, forgiven_attempts=5, max_attempts=5), Outcome(1, 7)), 0.0)
    log_job(Result(claimed(attempts=1, max_attempts=None), Outcome(1, 7)), 0.0)
    counted, without_budget = lines(caplog)
    assert "attempt 2 of 5, waited" in counted.getMessage()
    assert (counted.attempt, counted.max_attempts) == (2, 5)
    assert "attempt 1, waited" in without_budget.getMessage()
    assert not hasattr(without_budget, "max_attempts")


@pytest.mark.parametrize(
    ("delay", "words"), [(40.0, "in 40 s, at "), (2.25, "in 2.2 s, at "), (0.0, "at once (")]
)
@pytest.mark.parametrize("kind", ["retry", "crash"])
def test_when_it_runs_again(kind: Any, delay: float, words: str, caplog: pytest.LogCaptureFixture) -> None:
    log_job(Result(claimed(), Outcome(1, 7, kind, delay=delay)), 0.0)
    (record,) = lines(caplog)
    assert record.levelname == "WARNING"
    assert f"; it runs again {words}" in record.getMessage()
    assert record.retry_in == delay
    away = datetime.fromisoformat(record.next_run) - datetime.now(UTC)
    assert delay - 10 < away.total_seconds() <= delay


# -- why


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    "task", [tasks.raise_odd.bind("nul"), tasks.afail.bind("oops")], ids=["sync", "async"]
)
def test_a_failure_is_one_error_with_its_exception(task: Any, caplog: pytest.LogCaptureFixture) -> None:
    enqueue(task.task, *task.args)
    run_due()
    (record,) = warnings(caplog)
    assert (record.levelname, record.name) == ("ERROR", "django_pgqueue.job")
    message = "oops" if task.args[0] == "oops" else "a\\x00b"
    assert record.getMessage().endswith(f" s): ValueError: {message}")
    assert record.error_class == "builtins.ValueError"
    assert isinstance(record.exc_info[1], ValueError)
    first, *_ = traceback.extract_tb(record.exc_info[2])
    assert first.name == task.task.name  # no frame of the worker
    assert not hasattr(record, "retry_in")


@pytest.mark.django_db(transaction=True)
def test_an_attempt_that_is_retried_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    enqueue(tasks.fail)
    run_due()
    records = warnings(caplog)
    assert [record.levelname for record in records] == ["WARNING", "WARNING", "ERROR"]
    assert [f"{record.attempt} of {record.max_attempts}" for record in records] == [
        "1 of 3",
        "2 of 3",
        "3 of 3",
    ]
    assert all("in fail\n" in printed(record) for record in records)
    assert "; it runs again at once (queue default, attempt 1 of 3, " in records[0].getMessage()


@pytest.mark.django_db(transaction=True)
def test_what_wraps_the_real_exception_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    job = enqueue(tasks.add, 1)
    Job.objects.filter(pk=job.pk).update(task_path="tests.app.worker_tasks.noop")
    enqueue(tasks.bad_result, "set")
    run_due()
    by_class = {record.error_class.rpartition(".")[2]: record for record in warnings(caplog)}
    assert by_class.keys() == {"TypeError", "InvalidJSON"}
    # It did not come out of any code of the task.
    assert printed(by_class["TypeError"]).startswith("TypeError: tests.app.worker_tasks.noop(): ")
    assert "BadResult" not in printed(by_class["InvalidJSON"])


@pytest.mark.django_db(transaction=True)
def test_the_exception_of_another_process_is_shown_with_its_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    enqueue_isolated(tasks.raise_odd, "nul")
    run_due()
    (record,) = warnings(caplog)
    assert (record.levelname, record.error_class) == ("ERROR", "builtins.ValueError")
    assert record.getMessage().endswith(": ValueError: a\\x00b")
    text = printed(record)
    assert "in raise_odd\n" in text
    assert text.endswith("\nValueError: a\\x00b")
    assert "django_pgqueue/worker" not in text


@pytest.mark.django_db(transaction=True)
def test_the_last_crash_is_an_error_in_words(settings: Any, caplog: pytest.LogCaptureFixture) -> None:
    settings.PGQUEUE = {"CRASH_LIMIT": 3, "BACKOFF_BASE": 0}
    job = enqueue_isolated(deadly.die, "SIGKILL")
    run_due()
    crash, failed = warnings(caplog)
    assert (crash.levelname, crash.outcome) == ("WARNING", "crash")
    assert "crashed its process; it runs again at once" in crash.getMessage()
    assert crash.getMessage().endswith(": its process ended with signal SIGKILL")
    assert (failed.levelname, failed.outcome) == ("ERROR", "failed")
    reason = "its process ended with signal SIGKILL"
    words = f"{reason}. Its process has died 3 times while it ran, which is the limit."
    assert failed.getMessage().endswith(f": {words}")
    # As the row says it.
    error = fresh(job).errors[-1]
    assert (failed.error_class, words) == (error["class"], error["message"])


@pytest.mark.django_db(transaction=True)
def test_a_crash_of_what_must_not_run_twice_is_an_error_in_words(caplog: pytest.LogCaptureFixture) -> None:
    job = enqueue_isolated(deadly.die, "SIGKILL")
    Job.objects.filter(pk=job.pk).update(on_lost="fail")
    run_due()
    (failed,) = warnings(caplog)
    words = "its process ended with signal SIGKILL. The task must not run twice."
    assert (failed.levelname, failed.getMessage().endswith(f": {words}")) == ("ERROR", True)
    error = fresh(job).errors[-1]
    assert (failed.error_class, words) == (error["class"], error["message"])


@pytest.mark.django_db(transaction=True)
def test_an_unknown_task_fails_with_the_reason(settings: Any, caplog: pytest.LogCaptureFixture) -> None:
    settings.PGQUEUE = {"UNKNOWN_TASK_TIMEOUT": 0}
    job = enqueue(tasks.noop)
    Job.objects.filter(pk=job.pk).update(task_path="tests.app.gone.task")
    run_due()
    (record,) = warnings(caplog)
    assert (record.levelname, record.error_class) == ("ERROR", "django_pgqueue.exceptions.UnknownTask")
    assert "): no worker knew the task: " in record.getMessage()
    assert "No module named 'tests.app.gone'" in printed(record)  # why it could not be imported


def test_the_message_is_one_line_and_not_a_long_one(caplog: pytest.LogCaptureFixture) -> None:
    for error in (ValueError("first\nsecond"), ValueError("x" * 1000), ValueError()):
        entry = error_entry(error, worker=1, attempt=1, limit=10_000)
        log_job(Result(claimed(), Outcome(1, 7, "failed", error=entry), error=error), 0.0)
    first, long, empty = (record.getMessage().partition("): ")[2] for record in lines(caplog))
    assert first == "ValueError: first"
    assert long == f"ValueError: {'x' * 199}…"
    assert empty == "ValueError"


class Printing(logging.Handler):
    """Prints as handlers do."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(self.format(record))


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> Printing:
    """The only handler of the lines: pytest's keep the exceptions."""
    handler = Printing()
    monkeypatch.setattr(logging.getLogger("django_pgqueue.job"), "callHandlers", handler.handle)
    return handler


class Denying(Exception):
    """It denies that it is there."""

    def __bool__(self) -> bool:
        return False


class Unprintable(Exception):
    """It breaks every print of it, by what handlers let through."""

    @property
    def __notes__(self) -> list[str]:  # type: ignore[override]
        raise SystemExit("no notes")


@pytest.mark.parametrize(("error", "is_printed"), [(Denying("b"), True), (Unprintable("b"), False)])
def test_an_exception_that_breaks_its_own_printing_has_a_line(
    error: Exception, is_printed: bool, alone: Printing
) -> None:
    entry = error_entry(error, worker=1, attempt=1, limit=1_000)
    log_job(Result(claimed(), Outcome(1, 7, "failed", error=entry), error=error), 0.0)
    (text,) = alone.texts
    line, _, rest = text.partition("\n")
    assert line.endswith(f"): {__name__}.{type(error).__name__}: b")
    assert bool(rest) is is_printed


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("task", [tasks.fail_with_weight, tasks.afail_with_weight], ids=["sync", "async"])
def test_the_frames_of_a_failed_task_are_let_go_at_once(task: Any, alone: Printing) -> None:
    """They hold its values: not even the garbage collector has anything to do."""
    gc.disable()
    try:
        with working():
            enqueue(task)
            until(lambda: alone.texts)
            until(lambda: tasks.SEEN[0]() is None)
    finally:
        gc.enable()
    assert "in fail_with_weight\n" in alone.texts[0]


# -- claims and reports


@pytest.mark.django_db(transaction=True)
def test_claims_and_reports_are_told_among_the_details(caplog: pytest.LogCaptureFixture) -> None:
    for name in ("a", "a", "b"):
        enqueue(tasks.noop.using(queue_name=name))
    enqueue(tasks.raise_odd, "nul")
    caplog.set_level(logging.DEBUG, "django_pgqueue.worker.producer")
    run_due(threads=4)
    texts = [record.getMessage() for record in caplog.records if record.levelno == logging.DEBUG]
    text = "\n".join(texts)
    assert sum(map(int, re.findall(r"^claimed (\d+) of at most \d+ jobs in [\d.]+ ms", text, re.M))) == 4
    assert sum(map(int, re.findall(r", (\d+) of a\b", text))) == 2
    assert sum(map(int, re.findall(r", (\d+) of b\b", text))) == 1
    assert sum(map(int, re.findall(r"^reported (\d+) jobs in [\d.]+ ms", text, re.M))) == 4
    assert sum(map(int, re.findall(r", (\d+) done\b", text))) == 3
    assert sum(map(int, re.findall(r", (\d+) failed\b", text))) == 1
