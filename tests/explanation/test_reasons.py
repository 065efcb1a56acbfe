"""Why a job does not run: each reason, by SQL, with its words and what helps."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from unittest.mock import patch

import pytest
from django.core.management import load_command_class
from django.db import connection, transaction
from django.test import override_settings
from django.utils import timezone
from syrupy.assertion import SnapshotAssertion

from django_pgqueue import (
    RateLimit,
    RetryLater,
    Snooze,
    awhy,
    current_job,
    edit,
    enqueue,
    pause,
    resume,
    send_event,
    set_limit,
    why,
)
from django_pgqueue.explanation import CURES
from django_pgqueue.explanation.words import CODES
from django_pgqueue.models import Edge, Job, JobProgress
from tests.app.inline_tasks import BODIES, run_body
from tests.app.tasks import noop
from tests.support.factories import BatchFactory, JobFactory, WorkerFactory
from tests.support.sessions import Connect
from tests.support.waiting import run
from tests.support.workers import run_due

NOW = timezone.now
HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)


def worker(**values: Any) -> int:
    """Register a worker that is alive, with one slot."""
    return int(WorkerFactory.create(**{"slots": 1, "host": "web", "pid": 5, **values}).pk)


def running(on: int = 7, **values: Any) -> int:
    """Return a job that has been running for five minutes."""
    given = {"running": True, "worker": on, "last_attempted_at": NOW() - 5 * MINUTE, **values}
    return int(JobFactory.create(**given).pk)


def waiting(**values: Any) -> int:
    """Return a job that is due."""
    return int(JobFactory.create(**values).pk)


def keyed(place: int, **values: Any) -> int:
    """Return a job in the wait queue of a key."""
    reason = "waits for its limit key"
    return waiting(status="blocked", waiting_reason=reason, limit_key="send/5", wait_position=place, **values)


def target(limit: str) -> Any:
    if limit == "*":
        return {"everything": True}
    return {"queue": limit[6:]} if limit.startswith("queue:") else {"name": limit}


def rate(name: str, key: str) -> None:
    """Set a rate, and use it up for a minute."""
    set_limit(**target(name), rate_limit=RateLimit(1, per=MINUTE))
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO pgqueue_rate VALUES (%s, clock_timestamp() + interval '1 minute')", [key])


def after(*parents: Any, **values: Any) -> int:
    """Return a job that waits for others, which may have failed."""
    first = parents[0].pk
    job = waiting(status="blocked", waiting_reason=f"waits for job {first}", parent_ids=[first], **values)
    edges = [Edge(parent_id=parent.pk, child_id=job) for parent in parents]
    Edge.objects.bulk_create(edges, ignore_conflicts=True)
    return job


def last(*made: int) -> int:
    """Return the job that is asked about. What was made before it is the reason."""
    return made[-1]


def limited_queue(name: str, **values: Any) -> Callable[[], int]:
    def make() -> int:
        set_limit(**target(name), concurrency=1)
        running(**values)
        return waiting(queue_name="mail")

    return make


def rated() -> int:
    rate("send", "send/5")
    return waiting(
        limit_key="send/5",
        wait_position=1,
        run_after=NOW() + MINUTE,
        waiting_reason="waits for its rate limit",
    )


def behind() -> int:
    worker()
    waiting(priority=3)
    waiting(priority=3, group_key="a")
    waiting(priority=3, queue_name="other")
    waiting(priority=3, run_after=NOW() + HOUR)
    waiting(run_after=NOW() - HOUR)
    waiting(run_after=NOW() - HOUR, queue_name="other")
    return waiting()


def progressing() -> int:
    job = running(worker(), marks=8, current_step="load")
    JobProgress.objects.create(job_id=job, done=1500, total=2000, note="rows")
    return job


def rated_queue() -> int:
    rate("queue:mail", "queue:mail")
    return waiting(queue_name="mail")


def paused(**target: Any) -> Callable[[], int]:
    def make() -> int:
        pause(**target, reason="the bank is down", author="anna", duration=HOUR)
        more = {"group_key": "acme", "limit_key": "crm/acme", "kwargs": {"tenant": "acme"}}
        return waiting(queue_name="mail", **more)

    return make


def paused_again() -> int:
    job = waiting(status="blocked", waiting_reason="paused by anna")
    pause(task="tests.app.tasks.add")
    resume(task="tests.app.tasks.add")
    return job


def step(kind: str, ahead: timedelta) -> Callable[[], int]:
    def make() -> int:
        wake_at = NOW() + ahead
        job = waiting(marks=1, current_step="wait", run_after=wake_at, started_at=NOW())
        with connection.cursor() as cursor:
            cursor.execute(
                "INSERT INTO pgqueue_step (job_id, name, kind, wake_at) VALUES (%s, 'wait', %s, %s)",
                [job, kind, wake_at],
            )
        return job

    return make


CASES: dict[str, tuple[str, Callable[[], int]]] = {
    "unknown": ("unknown", lambda: 10**15),
    "done": ("done", lambda: waiting(done=True)),
    "failed": ("failed", lambda: waiting(failed=True)),
    "cancelled": ("cancelled", lambda: waiting(cancelled=True, cancel_requested_at=NOW())),
    "expired before": ("cancelled", lambda: waiting(cancelled=True, waiting_reason="expired at noon")),
    "running": ("running", progressing),
    "worker lost": ("worker_lost", running),
    "worker silent": (
        "worker_lost", lambda: running(worker(heartbeat_at=NOW() - HOUR))
    ),
    "asked to stop": (
        "cancel_requested", lambda: running(worker(), cancel_requested_at=NOW() - MINUTE)
    ),
    "expired": ("expired", lambda: waiting(expired=True)),
    "scheduled": ("scheduled", lambda: waiting(run_after=NOW() + 2 * HOUR)),
    "retry": ("retry", lambda: waiting(retrying=True, last_attempted_at=NOW() - timedelta(days=7300))),
    "snoozed": ("snoozed", lambda: waiting(retrying=True, started_at=NOW(), last_attempted_at=NOW())),
    "put back": ("put_back", lambda: waiting(scheduled=True, waiting_reason="the worker failed")),
    "sleeping": ("sleeping", step("sleep", HOUR)),
    "event": ("event", step("event", HOUR)),
    "event, ever": ("event", step("event", timedelta(days=36000))),
    "unknown task": (
        "unknown_task", lambda: waiting(scheduled=True, waiting_reason="no task 'a.b': ImportError: no")
    ),
    "unknown task, due": (
        "unknown_task",
        lambda: last(worker(), waiting(waiting_reason="'a.b' is not a task (its type is int).")),
    ),
    "after": ("after", lambda: after(JobFactory.create(running=True), JobFactory.create(done=True))),
    "after many": ("after", lambda: after(*JobFactory.create_batch(7))),
    "after a batch": ("after", lambda: after(BatchFactory.create(name="import"))),
    "after an open batch": (
        "after_open_batch",
        lambda: after(JobFactory.create(), BatchFactory.create(name="import", is_open=True)),
    ),
    "after a failed job": (
        "after_failed",
        lambda: after(BatchFactory.create(name="import", is_open=True), JobFactory.create(failed=True)),
    ),
    "after a failed batch": (
        "after_failed", lambda: after(BatchFactory.create(name="import", over=True, outcome="failed"))
    ),
    "after what is over": ("after_over", lambda: after(JobFactory.create(done=True))),
    "all paused": ("paused", paused(everything=True)),
    "queue paused": ("paused", paused(queue="mail")),
    "task paused": ("paused", paused(task="tests.app.tasks.add")),
    "group paused": ("paused", paused(group="acme")),
    "limit key paused": ("paused", paused(limit_key="crm/acme")),
    "argument paused": ("paused", paused(argument="tests.app.tasks.add kwargs.tenant=acme")),
    "pause over": ("pause_over", paused_again),
    "blocked": ("blocked", lambda: waiting(blocked=True)),
    "limit": ("limit", lambda: last(worker(), running(limit_key="send/5"), keyed(1), keyed(2))),
    "limit of a queue": ("limit", limited_queue("queue:mail", queue_name="mail")),
    "limit of all": ("limit", limited_queue("*")),
    "rate": ("rate", rated),
    "rate of a queue": ("rate", rated_queue),
    "no worker": ("no_worker", lambda: waiting(queue_name="the mail")),
    "other workers": (
        "no_worker",
        lambda: last(worker(queues=["a", "b"]), worker(exclude_queues=["default"]), waiting()),
    ),
    "worker ends": ("no_worker", lambda: last(worker(drain="stop"), waiting())),
    "worker silent for long": (
        "no_worker", lambda: last(worker(heartbeat_at=NOW() - MINUTE), waiting())
    ),
    "busy": ("busy", lambda: last(running(worker()), waiting(run_after=NOW() - HOUR), waiting())),
    "taken by lost jobs": ("busy", lambda: last(worker(slots=2, lost=2), waiting())),
    "in line": ("wait_queue", lambda: last(worker(), waiting(limit_key="send/5", wait_position=1), keyed(2))),
    "behind": ("behind", behind),
    "behind in its group": (
        "behind",
        lambda: last(
            worker(),
            waiting(group_key="a", run_after=NOW() - HOUR),
            waiting(group_key="b", run_after=NOW() - HOUR),
            waiting(group_key="c", run_after=NOW() + HOUR),
            waiting(group_key="a"),
        ),
    ),
    "uncommitted": ("uncommitted", lambda: last(worker(), waiting())),
}  # fmt: skip


@pytest.mark.django_db
@pytest.mark.parametrize(("code", "make"), CASES.values(), ids=list(CASES))
def test_the_reason(code: str, make: Callable[[], int], wording: SnapshotAssertion) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT setval('pgqueue_job_id_seq', 7654000)")
        job = make()
        cursor.execute("SELECT code FROM pgqueue_why(%s)", [job])
        assert cursor.fetchone() == (code,)
    reason = why(job)
    assert reason.code == code
    text = f"{reason}\n{reason.fix}".replace(str(job), "<job>")
    text = re.sub(r"\b7654\d{3}\b", "<other>", text)
    assert re.sub(r"\bin \d+ s\b", "in <seconds>", text) == wording
    if "manage.py pgqueue" in reason.fix:
        parser = load_command_class("django_pgqueue", "pgqueue").create_parser("manage.py", "pgqueue")
        parser.parse_args(shlex.split(reason.fix.split("manage.py pgqueue")[1]))


def test_every_reason_has_a_case() -> None:
    assert set(CODES) - {code for code, _ in CASES.values()} == {"locked", "ready"}
    assert set(CURES) <= set(CODES)


@pytest.mark.django_db(transaction=True)
def test_a_job_that_should_start_and_one_that_is_locked(connect: Connect) -> None:
    worker()
    job = enqueue(noop)
    reason = run(awhy(job))
    assert (reason.code, reason.fix) == ("ready", "")
    assert re.match(r"Nothing holds it: it has been due for \d+ s", reason.text)
    other = connect()
    other.execute("SET application_name = 'the shell'")
    other.execute("SELECT FROM pgqueue_job_live WHERE id = %s FOR UPDATE", (job.pk,))
    locked = why(job.pk)
    assert (locked.code, locked.facts["pid"]) == ("locked", other.info.backend_pid)
    assert re.search(r"locked its row \(process \d+, the shell, open for \d+ s\)", locked.text)
    assert locked.fix.endswith(f"pg_terminate_backend({other.info.backend_pid})")
    other.rollback()
    with transaction.atomic():
        edit(job, priority=1)
        assert why(job).code == "uncommitted"
    assert why(job).code == "ready"


@pytest.mark.django_db(transaction=True)
def test_what_a_worker_has_left_behind() -> None:
    """The words that a worker writes are those by which the reasons are told apart."""

    def raising(error: BaseException) -> Callable[[], None]:
        def body() -> None:
            raise error

        return body

    bodies: dict[str, Any] = {
        "retry": raising(RetryLater(60)), "snooze": raising(Snooze(HOUR)),
        "sleep": lambda: current_job().sleep("nap", 3600),
        "event": lambda: current_job().receive_event("approval"),
    }  # fmt: skip
    with patch.dict(BODIES, bodies):
        jobs = {name: enqueue(run_body, name) for name in bodies}
        jobs["paused"] = enqueue(noop)
        pause(task=noop)
        unknown = Job.objects.create(task_path="tests.app.gone.task")
        no_task = Job.objects.create(task_path="tests.explanation.test_reasons.HOUR")
        run_due()
    codes = {name: why(job).code for name, job in jobs.items()}
    assert codes == {
        "retry": "retry", "snooze": "snoozed", "sleep": "sleeping", "event": "event", "paused": "paused",
    }  # fmt: skip
    assert [why(job).code for job in (unknown, no_task)] == ["unknown_task", "unknown_task"]
    send_event(jobs["event"], "approval")
    assert why(jobs["event"]).code == "no_worker"


@pytest.mark.django_db
def test_texts_of_jobs_are_redacted() -> None:
    pattern = {"REDACT": ["re:card [0-9]+"]}
    error = {"class": "a.Declined", "message": "card 4111 was refused", "traceback": ""}
    job = waiting(failed=True, errors=[error])
    with override_settings(PGQUEUE=pattern):
        assert "a.Declined: [redacted] was refused." in why(job).text
        assert "[redacted]" in why(waiting(blocked=True, waiting_reason="card 4111")).text
        pause(queue="mail", reason="card 4111 of the office")
        assert "card 4111" in why(waiting(queue_name="mail")).text


@pytest.mark.django_db
@pytest.mark.parametrize("state", ["failed", "retrying"])
def test_a_pattern_sees_more_of_an_error_than_is_shown(state: str) -> None:
    """The function of the database cuts the message, here within what the pattern is to find."""
    message = f"{'x' * 490} 4111-1111-1111-1111 was refused"
    error = {"class": "a.Declined", "message": message, "traceback": "", "finished_at": "2100-01-01"}
    past = timezone.now() - timedelta(hours=1)
    job = waiting(errors=[error], last_attempted_at=past, **{state: True})
    assert "4111-1111" in why(job).text
    with override_settings(PGQUEUE={"REDACT": [r"re:\d{4}(-\d{4}){3}"]}):
        reason = why(job)
        assert reason.facts["error"]["message"] == f"{'x' * 490} [redacted"
        assert "4111" not in reason.text
        long = {**error, "message": message * 50}
        job = waiting(errors=[long], last_attempted_at=past, **{state: True})
        assert why(job).facts["error"]["message"] == "", "too long to be seen as a whole"


@pytest.mark.django_db(databases=["default", "other"])
def test_another_database() -> None:
    pk = Job.objects.using("other").create(task_path="a.b", queue_name="mail").pk
    reason = why(f"other:{pk}")
    assert (reason.database, reason.code) == ("other", "no_worker")
    assert reason.fix == "Start a worker: manage.py runqueueworker --queues mail --database other"
    assert why(pk, using="other").code == "no_worker"
    Job.objects.using("other").filter(pk=pk).update(run_after=NOW() + HOUR)
    assert why(pk, using="other").fix == f"To run it now: manage.py pgqueue run-now other:{pk}"
