"""The lines of the log: one for each attempt, which says how it went, why, and when the job runs again; one a
minute for a task that is unknown; and claims and reports among the details.
"""

from __future__ import annotations

import gc
import json
import logging
import re
import traceback
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone
from syrupy.assertion import SnapshotAssertion

from django_pgqueue import enqueue
from django_pgqueue.jobs.finish import Outcome
from django_pgqueue.models import Job
from django_pgqueue.worker.executor.errors import error_entry
from django_pgqueue.worker.executor.outcomes import Result
from django_pgqueue.worker.producer import reporter
from django_pgqueue.worker.producer.reporter import Reporter, UnknownTasks, log_job
from tests.app import deadly_tasks as deadly, worker_tasks as tasks
from tests.support.factories import claimed
from tests.support.jobs import sql
from tests.support.workers import fresh, run_due, until, working

LOGGER = "django_pgqueue.job"


def lines(caplog: pytest.LogCaptureFixture) -> list[Any]:
    return [record for record in caplog.records if record.name == LOGGER]


def shown(caplog: pytest.LogCaptureFixture) -> str:
    """Return the lines of jobs, and warnings of all loggers, without ids and durations, ordered by jobs."""
    found = []
    for record in caplog.records:
        if record.name == LOGGER or record.levelno >= logging.WARNING:
            message = record.getMessage()
            job = re.match(r"job (\d+)", message)
            message = re.sub(r"(?<=^job )\d+", "…", message)
            message = re.sub(r"(waited|ran|in) [\d.]+ s\b", r"\1 … s", message)
            found.append((int(job[1]) if job else 0, f"{record.levelname} {record.name}: {message}"))
    return "\n".join(line for _, line in sorted(found, key=lambda each: each[0]))


def printed(record: logging.LogRecord) -> str:
    """The exception as a handler prints it."""
    assert record.exc_info is not None
    return logging.Formatter().formatException(record.exc_info)


@pytest.fixture(autouse=True)
def _level(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, LOGGER)


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("forks_here")
def test_each_attempt_is_one_line(
    caplog: pytest.LogCaptureFixture, settings: Any, wording: SnapshotAssertion
) -> None:
    settings.PGQUEUE = {"CRASH_LIMIT": 3, "BACKOFF_BASE": 0, "UNKNOWN_TASK_TIMEOUT": 0}
    calls = {
        "done": tasks.add.bind(1, 2), "atomic": tasks.effect.bind("a"), "async": tasks.aid_everywhere.bind(),
        "fails": tasks.raise_odd.bind("nul"), "async fails": tasks.afail.bind("oops"),
        "bad result": tasks.bad_result.bind("set"), "again": tasks.fail_once.bind(),
        "later": tasks.sequence_backoff.bind(), "snoozed": tasks.snooze.bind(60),
        "cancelled": tasks.cancel_itself.bind("why"), "lost": tasks.lose_own_lease.bind(),
        "bad call": tasks.add.bind(1), "unknown": tasks.noop.bind(),
        "apart": tasks.raise_odd.bind("nul"), "crash": deadly.die.bind("SIGKILL"),
        "no second crash": deadly.die.bind("SIGKILL"),
    }  # fmt: skip
    jobs = {name: enqueue(call.task.using(queue_name="mail"), *call.args).pk for name, call in calls.items()}
    changes: dict[str, dict[str, Any]] = {
        "bad call": {"task_path": "tests.app.worker_tasks.noop"},
        "unknown": {"task_path": "tests.app.gone.task"},
        "apart": {"crash_count": 1}, "crash": {"crash_count": 1},
        "no second crash": {"crash_count": 1, "on_lost": "fail"},
        "done": {"run_after": timezone.now() - timedelta(seconds=100)},
    }  # fmt: skip
    for name, values in changes.items():
        Job.objects.filter(pk=jobs[name]).update(**values)
    run_due(threads=4)
    assert shown(caplog) == wording

    by_job: dict[int, list[Any]] = {}
    for record in lines(caplog):
        by_job.setdefault(record.job_id, []).append(record)
        assert record.queue_name == "mail"
        assert f" {record.task_path} " in record.getMessage()
        assert 0 <= record.ran < 100
        json.dumps(
            {name: getattr(record, name) for name in ("job_id", "attempt", "waited", "ran", "outcome")}
        )
    records = {name: by_job[pk] for name, pk in jobs.items()}
    assert 100 <= records["done"][0].waited < 200, "from due to start"
    assert [(each.attempt, each.max_attempts, each.outcome) for each in records["again"]] == [
        (1, 2, "retry"), (2, 2, "done"),
    ]  # fmt: skip
    failed = [name for name, found in records.items() if found[-1].outcome == "failed"]
    assert len(failed) == 8
    for name in failed:
        error, record = fresh(jobs[name]).errors[-1], records[name][-1]
        assert record.error_class == error["class"]
        assert error["message"].partition("\n")[0] in record.getMessage(), "as the row says it"
    for name in ("fails", "async fails", "again"):
        first, *_ = traceback.extract_tb(records[name][0].exc_info[2])
        assert first.name == calls[name].task.name, "no frame of the worker"
    apart = printed(records["apart"][0])
    assert "in raise_odd\n" in apart
    assert apart.endswith("\nValueError: a\\x00b")
    assert "django_pgqueue/worker" not in apart
    # It did not come out of any code of the task.
    assert printed(records["bad call"][0]).startswith("TypeError: tests.app.worker_tasks.noop(): ")
    assert "BadResult" not in printed(records["bad result"][0])
    assert "No module named 'tests.app.gone'" in printed(records["unknown"][0]), "why it was not imported"


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("call", "why"), [(tasks.fail.bind(), ": ValueError: broken"), (tasks.snooze.bind(60), "")]
)
def test_race_an_attempt_that_is_not_repeated_because_of_a_cancel_is_told_as_cancelled(
    call: Any, why: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request comes between the end of the run and its report."""
    job = enqueue(call)
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


def test_attempts_delays_and_messages(caplog: pytest.LogCaptureFixture, wording: SnapshotAssertion) -> None:
    def log(row: Any, outcome: Outcome, error: Exception | None = None) -> None:
        log_job(Result(row, outcome, error=error), 0.0)

    log(claimed(attempts=7, forgiven_attempts=5, max_attempts=5), Outcome(1, 7))  # as the budget counts them
    log(claimed(max_attempts=None), Outcome(1, 7))
    log(claimed(), Outcome(1, 7, "retry", delay=40.0))
    log(claimed(), Outcome(1, 7, "crash", delay=2.25))
    log(claimed(), Outcome(1, 7, "retry", delay=0.0))
    for error in (ValueError("first\nsecond"), ValueError("x" * 1000), ValueError()):
        entry = error_entry(error, worker=1, attempt=1)
        log(claimed(), Outcome(1, 7, "failed", error=entry), error)
    found = lines(caplog)
    text = "\n".join(record.getMessage() for record in found)
    assert re.sub(r"\d{4}-\d\d-\d\d [\d:]+ UTC", "…", text) == wording
    assert (found[0].attempt, found[0].max_attempts) == (2, 5)
    assert not hasattr(found[1], "max_attempts")
    assert [record.retry_in for record in found[2:5]] == [40.0, 2.25, 0.0]
    away = datetime.fromisoformat(found[2].next_run) - datetime.now(UTC)
    assert 30 < away.total_seconds() <= 40


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
    monkeypatch.setattr(logging.getLogger(LOGGER), "callHandlers", handler.handle)
    return handler


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


# -- tasks that are unknown here


def test_an_unknown_task_is_told_at_once_and_then_once_a_minute(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr(reporter, "monotonic", lambda: now)
    unknown = UnknownTasks()

    def counts() -> list[tuple[str, int]]:
        found = [(record.task_path, record.count) for record in lines(caplog)]
        caplog.clear()
        return found

    for _ in range(5):
        unknown.met(claimed(task_path="a.b"), "no task")
        unknown.log(now)
    unknown.met(claimed(task_path="c.d"), "no task")
    assert counts() == [("a.b", 1), ("c.d", 1)]
    now += 59.9
    unknown.met(claimed(task_path="a.b"), "no task")
    unknown.log(now)
    assert counts() == []
    now += 0.1
    unknown.log(now)
    assert counts() == [("a.b", 5)]
    unknown.met(claimed(task_path="a.b"), "no task")
    unknown.log(now, all_of_them=True)
    assert counts() == [("a.b", 1)], "at the end, the rest"
    now += 60
    unknown.log(now)
    assert unknown._logged_at == {}


@pytest.mark.django_db(transaction=True)
def test_a_worker_tells_of_unknown_tasks_and_their_jobs_are_details(
    caplog: pytest.LogCaptureFixture, wording: SnapshotAssertion
) -> None:
    caplog.set_level(logging.DEBUG, LOGGER)
    for path, count in (("tests.app.worker_tasks.nothing", 3), ("tests.app.no\x1b[2J\u202esuch.task", 1)):
        sql("SELECT pgqueue_enqueue(%s) FROM generate_series(1, %s)", path, count)
    run_due(threads=1)
    assert shown(caplog) == wording
    assert all(record.getMessage().isprintable() for record in lines(caplog)), "a path from SQL is data"
    assert not any(record.exc_info for record in lines(caplog) if record.levelno >= logging.WARNING)


# -- claims and reports


@pytest.mark.django_db(transaction=True)
def test_claims_and_reports_are_told_among_the_details(caplog: pytest.LogCaptureFixture) -> None:
    for name in ("a", "a", "b"):
        enqueue(tasks.noop.using(queue_name=name))
    enqueue(tasks.raise_odd, "nul")
    caplog.set_level(logging.DEBUG, "django_pgqueue.worker.producer")
    run_due(threads=4)
    text = "\n".join(record.getMessage() for record in caplog.records if record.levelno == logging.DEBUG)
    for pattern, total in {
        r"^claimed (\d+) of at most \d+ jobs in [\d.]+ ms": 4, r", (\d+) of a\b": 2, r", (\d+) of b\b": 1,
        r"^reported (\d+) jobs in [\d.]+ ms": 4, r", (\d+) done\b": 3, r", (\d+) failed\b": 1,
    }.items():  # fmt: skip
        assert sum(map(int, re.findall(pattern, text, re.MULTILINE))) == total, pattern
