"""Sentry, set up as the documentation shows: an event per final failure, with the tags of its job alone."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import sentry_sdk
from sentry_sdk.envelope import Envelope
from sentry_sdk.transport import Transport

from django_pgqueue import enqueue, task
from django_pgqueue.maintenance.recovery import EndedProcess, recover
from django_pgqueue.models import Job
from django_pgqueue.postgres.session import connect
from django_pgqueue.telemetry import sentry
from tests.app import worker_tasks as tasks
from tests.support.factories import JobFactory, claimed
from tests.support.workers import run_due

EXAMPLE = Path(__file__).resolve().parents[2] / "docs" / "examples" / "settings" / "sentry.py"


class Collecting(Transport):
    """Keeps what would be sent."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[Any] = []
        self.flushed: list[float] = []

    def capture_envelope(self, envelope: Envelope) -> None:
        if (event := envelope.get_event()) is not None:
            self.events.append(event)

    def flush(self, timeout: float, callback: Any = None) -> None:
        self.flushed.append(timeout)


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collecting]:
    monkeypatch.setenv("SENTRY_DSN", "https://key@sentry.invalid/1")
    runpy.run_path(str(EXAMPLE))
    client: Any = sentry_sdk.get_client()
    assert client.get_integration("django") is not None
    client.transport.kill()
    client.transport = transport = Collecting()
    yield transport
    client.close()
    sentry_sdk.get_global_scope().set_client(None)


@task(max_attempts=1)
def fail_as(customer: str) -> None:
    sentry_sdk.set_tag("customer", customer)
    sentry_sdk.add_breadcrumb(message=f"for {customer}")
    tasks.meet.func("sentry", 2)
    raise ValueError(customer)


@task(max_attempts=1)
async def afail_as(customer: str) -> None:
    sentry_sdk.set_tag("customer", customer)
    sentry_sdk.add_breadcrumb(message=f"for {customer}")
    meeting: Any = tasks.ameet.func("sentry", 2)
    await meeting
    raise ValueError(customer)


@task
def reports() -> None:
    sentry_sdk.capture_message("something is odd")


def tags_of(job: Job) -> dict[str, str]:
    return {"pgqueue.task": job.task_path, "pgqueue.queue": job.queue_name, "pgqueue.job_id": str(job.pk)}


@pytest.mark.django_db(transaction=True)
def test_each_final_failure_is_one_event_with_the_tags_of_its_job(sent: Collecting, settings: Any) -> None:
    """A retried attempt is none. What a task reports itself has the tags, too."""
    settings.PGQUEUE = {"UNKNOWN_TASK_TIMEOUT": 0}
    jobs = [
        enqueue(tasks.fail.using(queue_name="mail")),
        JobFactory.create(
            task_path=tasks.raise_odd.module_path, args=["group"], max_attempts=1, crash_count=1
        ),
        JobFactory.create(task_path="tests.app.gone.task"),
        enqueue(reports),
    ]
    run_due()
    assert len(sent.events) == len(jobs)
    by_job = {event["tags"]["pgqueue.job_id"]: event for event in sent.events}
    retried, isolated, unknown, reported = events = [by_job[str(job.pk)] for job in jobs]
    assert [event["tags"] for event in events] == [tags_of(job) for job in jobs]
    assert reported["message"] == "something is odd"
    assert (retried["level"], retried["logger"]) == ("error", "django_pgqueue.job")
    assert (retried["extra"]["attempt"], retried["extra"]["max_attempts"]) == (3, 3)
    (error,) = retried["exception"]["values"]
    frames = [frame["function"] for frame in error["stacktrace"]["frames"]]
    assert (error["type"], frames) == ("ValueError", ["fail"])
    (error,) = isolated["exception"]["values"]
    assert error["type"] == "ExceptionGroup"
    assert error["value"].startswith("many (2 sub-exceptions)\n")
    assert "in raise_odd\n" in error["value"]
    assert unknown["exception"]["values"][-1]["type"] == "UnknownTask"


@pytest.mark.django_db(transaction=True)
def test_a_failure_in_recovery_is_one_event(sent: Collecting) -> None:
    sentry_sdk.set_tag("pgqueue.task", "another")  # what the supervisor has set is not the job's
    failed, crashed = (JobFactory.create(running=True, on_lost=on_lost) for on_lost in ("fail", "rerun"))
    session = connect("default")
    try:
        recover(session, EndedProcess(7, [failed.pk, crashed.pk], None, "its process ended", 0.0, 1.0))
    finally:
        session.close()
    (event,) = sent.events
    assert (event["level"], event["logger"]) == ("error", "django_pgqueue.job")
    assert event["logentry"]["formatted"].endswith(": its process ended. The task must not run twice.")
    assert event["tags"] == tags_of(failed)
    assert event["extra"]["error_class"] == "django_pgqueue.exceptions.WorkerLost"


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("task", [fail_as, afail_as], ids=["sync", "async"])
def test_jobs_that_run_at_the_same_time_have_scopes_of_their_own(task: Any, sent: Collecting) -> None:
    sentry_sdk.add_breadcrumb(message="for nobody")  # what the worker does is no job's either
    jobs = {name: enqueue(task, name) for name in ("one", "two")}
    later = enqueue(tasks.raise_odd, "nul")  # on a thread that has run one of the others
    run_due(threads=2)
    events = {event["exception"]["values"][-1]["value"]: event for event in sent.events}
    assert len(sent.events) == 3
    for name, job in jobs.items():
        assert events[name]["tags"] == {**tags_of(job), "customer": name}
        crumbs = [crumb["message"] for crumb in events[name]["breadcrumbs"]["values"]]
        assert [crumb for crumb in crumbs if crumb.startswith("for ")] == [f"for {name}"]
    assert events["a\0b"]["tags"] == tags_of(later)


def test_what_was_collected_is_sent_before_a_process_ends_at_once(sent: Collecting) -> None:
    sentry.flush()
    assert sent.flushed == [sentry.FLUSH_SECONDS]


@pytest.mark.parametrize(
    "sdk", [None, ModuleType("sentry_sdk"), sentry_sdk], ids=["none", "partial", "unused"]
)
def test_without_sentry_nothing_happens(sdk: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not there, is being imported by another thread at this moment, or was never set up."""
    if sdk is None:
        monkeypatch.delitem(sys.modules, "sentry_sdk")
    else:
        monkeypatch.setitem(sys.modules, "sentry_sdk", sdk)
    sentry.flush()
    with sentry.job_scope(claimed()) as scope, sentry.job_scope(claimed(), scope) as other:
        assert (scope, other) == (None, None)
