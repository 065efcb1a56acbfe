"""The lines for a user who stops the command."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
from django.db import connection

from django_pgqueue.worker.options import WorkerOptions
from django_pgqueue.worker.supervisor.heartbeat import Heartbeat
from django_pgqueue.worker.supervisor.supervisor import running_jobs, stopping
from tests.app import worker_tasks as tasks
from tests.support.factories import JobFactory
from tests.support.sessions import open_raw

ONE = running_jobs(["shop.tasks.ship 12 s"])
FIVE = running_jobs([f"shop.tasks.{name} 5 s" for name in "abcde"])


@pytest.mark.parametrize(
    ("running", "grace", "number", "line"),
    [
        (running_jobs([]), 30.0, signal.SIGINT, "Stopping: no jobs are running."),
        (
            ONE, 30.0, signal.SIGINT,
            ("Stopping: waiting up to 30 s for 1 running job (shop.tasks.ship 12 s). "
            "Press Ctrl-C again to stop now."),
        ),
        (
            FIVE, 2.5, signal.SIGTERM,
            ("Stopping: waiting up to 2.5 s for 5 running jobs (shop.tasks.a 5 s, shop.tasks.b 5 s, "
            "shop.tasks.c 5 s, and 2 more). Send the signal again to stop now."),
        ),
        (
            ONE, 30.0, signal.SIGHUP,
            "Stopping: waiting up to 30 s for 1 running job (shop.tasks.ship 12 s).",
        ),
        (
            ONE, 0.0, signal.SIGTERM,
            ("Stopping now, without a grace period. "
            "1 running job (shop.tasks.ship 12 s) will be requeued and start over later."),
        ),
        (
            running_jobs(["job 7", "job 8"]), 30.0, None,
            "Stopping: waiting up to 30 s for 2 running jobs (job 7, job 8).",
        ),
        (
            "the running jobs", 30.0, signal.SIGINT,
            "Stopping: waiting up to 30 s for the running jobs. Press Ctrl-C again to stop now.",
        ),
    ],
)  # fmt: skip
def test_the_first_request(running: str, grace: float, number: signal.Signals | None, line: str) -> None:
    assert stopping(running, grace, number) == line


@pytest.mark.parametrize(
    ("running", "line"),
    [
        (running_jobs([]), "Stopping now."),
        (ONE, "Stopping now. 1 running job (shop.tasks.ship 12 s) will be requeued and start over later."),
        (
            running_jobs(["job 7", "job 8"]),
            "Stopping now. 2 running jobs (job 7, job 8) will be requeued and start over later.",
        ),
        ("the running jobs", "Stopping now. The running jobs will be requeued and start over later."),
    ],
)
def test_the_second_request(running: str, line: str) -> None:
    assert stopping(running, None, None) == line


@pytest.fixture
def heartbeat(transactional_db: None) -> Iterator[Heartbeat]:
    """One that is connected."""
    heartbeat = Heartbeat(WorkerOptions())
    assert heartbeat.start(lambda: None, lambda seconds: None, lambda: False)
    yield heartbeat
    heartbeat.end()


def test_the_database_names_what_still_runs(heartbeat: Heartbeat) -> None:
    """What has ended meanwhile, and is not reported to the supervisor yet, is not waited for."""
    path = tasks.noop.module_path
    running = JobFactory.create(running=True, task_path=path)
    over = JobFactory.create(done=True, task_path=path)
    named = heartbeat.running([running.pk, over.pk])
    assert named is not None
    ((name, age),) = named
    assert name == path
    assert 0 <= age < 3600
    assert heartbeat.running([]) == []


def test_a_database_that_does_not_answer_holds_nobody_up(heartbeat: Heartbeat) -> None:
    """A lock on the whole table: the numbers must do, and the connection stays in use."""
    job = JobFactory.create(running=True)
    with open_raw() as other, other.transaction():
        other.execute("LOCK TABLE pgqueue_job_live IN ACCESS EXCLUSIVE MODE")
        assert heartbeat.running([job.pk]) is None
    assert heartbeat.session
    assert heartbeat.running([job.pk])
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
    assert heartbeat.running([job.pk]) is None, "the connection is lost"
    assert heartbeat.running([job.pk]) is None, "there is no connection"
