"""Cancelling running jobs, by notification and by polling: a sync task sees an event, an async one is
cancelled.
"""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection

from django_pgqueue import cancel, enqueue
from tests.app import worker_tasks as tasks
from tests.support.workers import fresh, until, working

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(params=["by notification", "by polling"])
def ask(request: pytest.FixtureRequest, settings: Any) -> Any:
    """Ask a job to stop in one of the two ways, while the other way is disabled."""
    if request.param == "by notification":
        settings.PGQUEUE = {"POLL_INTERVAL": 60}
        return cancel
    settings.PGQUEUE = {"POLL_INTERVAL": 0.05}

    def quietly(job: Any) -> int:
        with connection.cursor() as cursor:
            cursor.execute(
                "UPDATE pgqueue_job_live SET cancel_requested_at = now()"
                " WHERE id = %s AND status = 'running'",
                [job.pk],
            )
            changed: int = cursor.rowcount
            return changed

    return quietly


def test_a_sync_task_is_asked_to_stop(ask: Any) -> None:
    job = enqueue(tasks.stoppable, "a")
    with working():
        assert tasks.gate("a runs").wait(tasks.DEADLINE)
        assert ask(job) == 1
        until(lambda: fresh(job).status == "cancelled")
    assert tasks.SEEN == [("a", True)]
    assert fresh(job).waiting_reason == "stopped when asked"


@pytest.mark.promise("cancel-async")
def test_an_async_task_is_cancelled(ask: Any) -> None:
    job = enqueue(tasks.asleep, "a")
    with working():
        assert tasks.gate("a runs").wait(tasks.DEADLINE)
        assert ask(job) == 1
        until(lambda: fresh(job).status == "cancelled")
    assert tasks.SEEN == ["a cancelled"]
    assert fresh(job).waiting_reason == "asked to stop"


def test_a_notification_alone_cancels_nothing(settings: Any) -> None:
    """Every role that may connect can send one. The row decides."""
    settings.PGQUEUE = {"POLL_INTERVAL": 60}
    job = enqueue(tasks.asleep, "a")
    with working() as worker, connection.cursor() as cursor:
        assert tasks.gate("a runs").wait(tasks.DEADLINE)
        read = worker.producer._inbox
        cursor.execute("SELECT pg_notify(_pgqueue_channel(), %s)", [f"cancel {job.pk}"])
        after = enqueue(tasks.noop)  # its notification comes later
        until(lambda: fresh(after).status == "done")
        until(lambda: not read._named_jobs)
        assert fresh(job).status == "running"
        assert tasks.SEEN == []
        assert cancel(job) == 1
        until(lambda: fresh(job).status == "cancelled")


def test_only_the_job_that_was_meant_stops() -> None:
    jobs = {name: enqueue(tasks.asleep, name) for name in ("a", "b")}
    sync = enqueue(tasks.hold, "s")
    with working(threads=4):
        for name in ("a", "b", "s"):
            assert tasks.gate(f"{name} runs").wait(tasks.DEADLINE)
        assert cancel(jobs["a"]) == 1
        until(lambda: fresh(jobs["a"]).status == "cancelled")
        assert fresh(jobs["b"]).status == fresh(sync).status == "running"
        assert cancel(jobs["b"]) == 1
        tasks.gate("s").set()
        until(lambda: fresh(jobs["b"]).status == "cancelled")
        until(lambda: fresh(sync).status == "done")


def test_a_task_that_does_not_look_is_done_all_the_same() -> None:
    job = enqueue(tasks.hold, "a")
    with working():
        assert tasks.gate("a runs").wait(tasks.DEADLINE)
        assert cancel(job) == 1
        assert cancel(job) == 0
        tasks.gate("a").set()
        until(lambda: fresh(job).status == "done")


@pytest.mark.promise("cancel-no-retry")
def test_a_job_that_was_asked_to_stop_is_not_retried() -> None:
    job = enqueue(tasks.stops_by_error, "a")
    with working():
        assert tasks.gate("a runs").wait(tasks.DEADLINE)
        assert cancel(job) == 1
        until(lambda: fresh(job).is_finished)
    assert fresh(job).status == "cancelled"
    assert [error["message"] for error in fresh(job).errors] == ["torn down"]
