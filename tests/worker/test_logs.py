"""One log line per job, with the figures as extras, and what a terminal shows at each verbosity."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection

from django_pgqueue import enqueue
from django_pgqueue.models import Job
from django_pgqueue.worker.logs import configure_logging, logging_restored
from tests.app import worker_tasks as tasks
from tests.support.workers import fresh, run_due


def lines(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.name == "django_pgqueue.job"]


@pytest.fixture(autouse=True)
def _level(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "django_pgqueue.job")


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("call", "level", "word"),
    [
        (tasks.add.bind(1, 2), "INFO", "done"),
        (tasks.effect.bind("a"), "INFO", "done"),
        (tasks.aid_everywhere.bind(), "INFO", "done"),
        (tasks.raise_odd.bind("nul"), "ERROR", "failed"),
        (tasks.bad_result.bind("set"), "ERROR", "failed"),
        (tasks.slow_backoff.bind(), "WARNING", "retry"),
        (tasks.snooze.bind(60), "INFO", "snooze"),
        (tasks.cancel_itself.bind("why"), "INFO", "cancelled"),
    ],
    ids=lambda value: value.task.name if hasattr(value, "task") else None,
)
def test_each_outcome_is_one_line(call: Any, level: str, word: str, caplog: pytest.LogCaptureFixture) -> None:
    job = enqueue(call.task.using(queue_name="mail"), *call.args)
    run_due()
    (record,) = lines(caplog)
    assert record.levelname == level
    assert record.getMessage().startswith(
        f"job {job.pk} {call.task.module_path} {word} (queue mail, attempt 1, waited "
    )
    extras: Any = record
    assert (extras.job_id, extras.task_path, extras.queue_name) == (job.pk, call.task.module_path, "mail")
    assert (extras.attempt, extras.outcome) == (1, word)
    assert 0 <= extras.waited < 20
    assert 0 <= extras.ran < 20
    json.dumps({name: getattr(extras, name) for name in ("job_id", "queue_name", "attempt", "waited", "ran")})
    if word == "cancelled":
        assert record.getMessage().endswith("): why\\x00")


@pytest.mark.django_db(transaction=True)
def test_a_lost_lease_is_told_as_such(caplog: pytest.LogCaptureFixture) -> None:
    job = enqueue(tasks.lose_own_lease)
    run_due(max_jobs=1)
    assert fresh(job).status == "pending"
    (record,) = lines(caplog)
    assert (record.levelname, getattr(record, "outcome", None)) == ("WARNING", "lost its lease")
    assert f"job {job.pk}: the lease was lost, so its outcome (done) was refused" in caplog.text


@pytest.mark.django_db(transaction=True)
def test_an_unknown_task_is_told(caplog: pytest.LogCaptureFixture) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pgqueue_enqueue('tests.app.worker_tasks.nothing')")
    run_due()
    (record,) = lines(caplog)
    assert record.levelname == "WARNING"
    assert "is unknown here and waits" in record.getMessage()
    assert "no task 'tests.app.worker_tasks.nothing'" in record.getMessage()


@pytest.mark.django_db(transaction=True)
def test_the_wait_is_from_due_to_start(caplog: pytest.LogCaptureFixture) -> None:
    enqueue(tasks.noop)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE pgqueue_job_live SET run_after = now() - interval '100 seconds'")
    run_due()
    (record,) = lines(caplog)
    assert 100 <= getattr(record, "waited", 0.0) < 120
    assert Job.objects.get().status == "done"


@pytest.fixture
def configured(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, logging.Manager], logging.Manager]:
    """Call `configure_logging` among loggers that nobody else, pytest included, has touched."""

    def configure(verbosity: int, manager: logging.Manager) -> logging.Manager:
        with monkeypatch.context() as patch:
            patch.setattr(logging, "getLogger", manager.getLogger)
            configure_logging(verbosity)
        return manager

    return configure


def fresh_manager() -> logging.Manager:
    root = logging.RootLogger(logging.WARNING)
    manager = logging.Manager(root)
    root.manager = manager
    return manager


@pytest.mark.parametrize(
    ("verbosity", "package", "jobs"),
    [
        (0, logging.WARNING, logging.ERROR),
        (1, logging.INFO, logging.WARNING),
        (2, logging.INFO, logging.INFO),
        (3, logging.DEBUG, logging.DEBUG),
    ],
)
def test_verbosity(verbosity: int, package: int, jobs: int, configured: Any) -> None:
    manager = configured(verbosity, fresh_manager())
    logger = manager.getLogger("django_pgqueue")
    assert (logger.level, manager.getLogger("django_pgqueue.job").level) == (package, jobs)
    assert len(logger.handlers) == 1


def test_a_project_that_has_configured_logging_is_left_alone(configured: Any) -> None:
    manager = fresh_manager()
    manager.root.addHandler(logging.NullHandler())
    configured(3, manager)
    logger = manager.getLogger("django_pgqueue")
    assert (logger.handlers, logger.level) == ([], logging.NOTSET)


def test_what_was_configured_is_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """However the command ends."""
    manager = fresh_manager()
    loggers = [manager.getLogger(name) for name in ("django_pgqueue", "django_pgqueue.job")]
    loggers[1].setLevel(logging.CRITICAL)
    with monkeypatch.context() as patch:
        patch.setattr(logging, "getLogger", manager.getLogger)
        with pytest.raises(SystemExit), logging_restored():
            _configure_and_exit()
    assert [(logger.level, logger.handlers) for logger in loggers] == [
        (logging.NOTSET, []),
        (logging.CRITICAL, []),
    ]


def _configure_and_exit() -> None:
    configure_logging(2)
    assert [logging.getLogger(name).level for name in ("django_pgqueue", "django_pgqueue.job")] == [20, 20]
    raise SystemExit
