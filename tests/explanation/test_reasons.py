"""Why a job does not run: each reason, by SQL, with its words and what helps."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from datetime import timedelta
from typing import Any, NamedTuple

import pytest
from django.core.management import load_command_class
from django.db import connection, transaction
from django.test import override_settings
from django.utils import timezone

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
from tests.app.debugged_tasks import BODIES, run_body
from tests.app.tasks import noop
from tests.support.coroutines import run
from tests.support.factories import BatchFactory, JobFactory, WorkerFactory
from tests.support.sessions import Connect
from tests.support.workers import run_due

NOW = timezone.now
HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)


def worker(**values: Any) -> int:
    """Register a worker that is alive, with one slot."""
    return int(WorkerFactory.create(**{"slots": 1, **values}).pk)


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


class Case(NamedTuple):
    """A state, and what is said about it: the text and the fix as patterns."""

    code: str
    make: Callable[[], int]
    text: str
    fix: str = ""


def after_two() -> int:
    running_one = JobFactory.create(running=True)
    return after(running_one, JobFactory.create(done=True))


def limited() -> int:
    worker()
    running(limit_key="send/5")
    keyed(1)
    return keyed(2)


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


def rated_queue() -> int:
    rate("queue:mail", "queue:mail")
    return waiting(queue_name="mail")


def busy() -> int:
    running(worker())
    waiting(run_after=NOW() - HOUR)
    return waiting()


def taken_by_lost_jobs() -> int:
    worker(slots=2, lost=2)
    return waiting()


def in_line() -> int:
    worker()
    waiting(limit_key="send/5", wait_position=1)
    return keyed(2)


def behind() -> int:
    worker()
    waiting(priority=3)
    waiting(priority=3, group_key="a")
    waiting(priority=3, queue_name="other")
    waiting(priority=3, run_after=NOW() + HOUR)
    waiting(run_after=NOW() - HOUR)
    waiting(run_after=NOW() - HOUR, queue_name="other")
    return waiting()


def behind_group() -> int:
    worker()
    waiting(group_key="a", run_after=NOW() - HOUR)
    waiting(group_key="b", run_after=NOW() - HOUR)
    waiting(group_key="c", run_after=NOW() + HOUR)
    return waiting(group_key="a")


def progressing() -> int:
    job = running(worker(host="web", pid=5), marks=8, current_step="load")
    JobProgress.objects.create(job_id=job, done=1500, total=2000, note="rows")
    return job


def paused(**target: Any) -> Callable[[], int]:
    def make() -> int:
        pause(**target, reason="the bank is down", author="anna", duration=HOUR)
        return waiting(queue_name="mail")

    return make


def paused_again() -> int:
    job = waiting(status="blocked", waiting_reason="paused by anna")
    pause(task="tests.app.tasks.add")
    resume(task="tests.app.tasks.add")
    return job


def step(kind: str, wake_at: Any) -> Callable[[], int]:
    def make() -> int:
        job = waiting(marks=1, current_step="wait", run_after=wake_at, started_at=NOW())
        with connection.cursor() as cursor:
            cursor.execute(
                "INSERT INTO pgqueue_step (job_id, name, kind, wake_at) VALUES (%s, 'wait', %s, %s)",
                [job, kind, wake_at],
            )
        return job

    return make


ENDED = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"
CASES = {
    "unknown": Case("unknown", lambda: 10**15, "There is no job with this id"),
    "done": Case("done", lambda: waiting(done=True), f"It is done since {ENDED}\\."),
    "failed": Case(
        "failed", lambda: waiting(failed=True),
        f"It failed at {ENDED}, after 1 attempt: shop.errors.GatewayDown: no answer from the gateway\\.",
        r"To run it again: manage\.py pgqueue retry <job>$",
    ),
    "cancelled": Case(
        "cancelled", lambda: waiting(cancelled=True, cancel_requested_at=NOW()),
        f"It was cancelled at {ENDED}: on request\\.", "pgqueue retry <job>$",
    ),
    "expired before": Case(
        "cancelled", lambda: waiting(cancelled=True, waiting_reason="expired at noon"), "expired at noon"
    ),
    "running": Case(
        "running", progressing,
        r"It runs: attempt 1, for 5 min, on web:5, at the step 'load', 1,500 of 2,000 done \(rows\)\.",
    ),
    "worker lost": Case("worker_lost", running, r"Its worker \(a worker that no .*\) is lost", "alive"),
    "worker silent": Case(
        "worker_lost", lambda: running(worker(host="web", pid=5, heartbeat_at=NOW() - HOUR)), r"web:5"
    ),
    "asked to stop": Case(
        "cancel_requested", lambda: running(worker(), cancel_requested_at=NOW() - MINUTE),
        "It was asked to stop 1 min ago, and still runs: attempt 1", "cancel_requested",
    ),
    "expired": Case(
        "expired", lambda: waiting(expired=True), f"It expired at {ENDED}, so it will", "pgqueue retry <job>$"
    ),
    "scheduled": Case(
        "scheduled", lambda: waiting(run_after=NOW() + 2 * HOUR), f"due in 1 h 59 min, at {ENDED}",
        r"To run it now: manage\.py pgqueue run-now <job>$",
    ),
    "retry": Case(
        "retry",
        lambda: waiting(retrying=True, last_attempted_at=NOW() - 5 * timedelta(days=365 * 4)),
        "Attempt 1 failed: shop.errors.GatewayDown: no answer from the gateway. The next one is due",
        "run-now <job>$",
    ),
    "snoozed": Case(
        "snoozed", lambda: waiting(retrying=True, started_at=NOW(), last_attempted_at=NOW()),
        "Its task has put it off", "run-now <job>$",
    ),
    "put back": Case(
        "put_back", lambda: waiting(scheduled=True, waiting_reason="the worker failed"),
        "It was put back: the worker failed. It is due in", "run-now <job>$",
    ),
    "sleeping": Case(
        "sleeping", step("sleep", NOW() + HOUR), "It sleeps at the step 'wait'. It goes on in", "^$"
    ),
    "event": Case(
        "event", step("event", NOW() + HOUR), "It waits for the event 'wait', for .* more, until",
        r"event\(<job>, 'wait'\)",
    ),
    "event, ever": Case("event", step("event", NOW() + timedelta(days=36000)), "event 'wait'\\.$"),
    "unknown task": Case(
        "unknown_task", lambda: waiting(scheduled=True, waiting_reason="no task 'a.b': ImportError: no"),
        "does not know its task: no task 'a.b': ImportError: no\\. Workers try", "Restart",
    ),
    "unknown task, due": Case(
        "unknown_task",
        lambda: (worker(), waiting(waiting_reason="'a.b' is not a task (its type is int)."))[1],
        "is not a task",
    ),
    "after": Case(
        "after", after_two, r"It waits for job \d+ \(tests.app.tasks.add, running\), job \d+ \(.*, done\)\.",
        r"manage.py pgqueue why \d+",
    ),
    "after many": Case(
        "after", lambda: after(*JobFactory.create_batch(7)),
        r"(job \d+ \(tests.app.tasks.add, pending\), ){5}2 more\.",
    ),
    "after a batch": Case(
        "after", lambda: after(BatchFactory.create(name="import")), r"batch \d+ \(import, running\)", "^$"
    ),
    "after an open batch": Case(
        "after_open_batch",
        lambda: after(JobFactory.create(), BatchFactory.create(name="import", is_open=True)),
        r"It waits for batch \d+ \(import, open\), job \d+ .*A batch that is open",
        r"Batch.get\(\d+\)\.close\(\)",
    ),
    "after a failed job": Case(
        "after_failed", lambda: after(BatchFactory.create(is_open=True), JobFactory.create(failed=True)),
        r"It waits for job \d+ \(tests.app.tasks.add, failed\), batch",
        r"what has failed: manage\.py pgqueue retry \d+$",
    ),
    "after a failed batch": Case(
        "after_failed", lambda: after(BatchFactory.create(over=True, outcome="failed")),
        r"batch \d+", r"manage\.py pgqueue retry --batch \d+$",
    ),
    "after what is over": Case("after_over", lambda: after(JobFactory.create(done=True)), "Maintenance"),
    "all paused": Case(
        "paused", paused(everything=True),
        f"Everything is paused: since {ENDED}, until {ENDED}, by anna, with the reason “the bank is down”\\.",
        "manage.py pgqueue resume --everything",
    ),
    "queue paused": Case(
        "paused", paused(queue="mail"), "The queue mail is paused: since", "pgqueue resume --queue mail"
    ),
    "task paused": Case(
        "paused", paused(task="tests.app.tasks.add"), "The task tests.app.tasks.add is paused",
        "pgqueue resume --task tests.app.tasks.add",
    ),
    "pause over": Case("pause_over", paused_again, "The pause of its task is over"),
    "blocked": Case("blocked", lambda: waiting(blocked=True), "It is blocked: waits for another job\\."),
    "limit": Case(
        "limit", limited,
        r"The limit send/5 is full: 1 of 1 jobs run \(job \d+ \(tests.app.tasks.add, for 5 min\)\)\. "
        "1 job of its key is before it\\.", r"set_limit\(name='send', concurrency=2\)",
    ),
    "limit of a queue": Case(
        "limit", limited_queue("queue:mail", queue_name="mail"), "The limit queue:mail is full"
    ),
    "limit of all": Case("limit", limited_queue("*"), r"The limit \* is full"),
    "rate": Case(
        "rate", rated,
        f"The rate send/5 \\(1 a minute\\) is used up: the next start is in .*, at {ENDED}. It is the",
        "set_limit",
    ),
    "rate of a queue": Case("rate", rated_queue, "The rate queue:mail"),
    "no worker": Case(
        "no_worker", lambda: waiting(queue_name="the mail"),
        "No worker serves the queue 'the mail' in the database 'default'\\.$",
        "manage.py runqueueworker --queues 'the mail'",
    ),
    "other workers": Case(
        "no_worker", lambda: (worker(queues=["a", "b"]), worker(exclude_queues=["default"]), waiting())[2],
        "Those that are registered serve: a, b; all but default\\.",
    ),
    "worker ends": Case("no_worker", lambda: (worker(drain="stop"), waiting())[1], "are ending"),
    "worker silent for long": Case(
        "no_worker", lambda: (worker(heartbeat_at=NOW() - MINUTE), waiting())[1], "send no heartbeats"
    ),
    "busy": Case(
        "busy", busy,
        r"The only slot of the workers that serve its queue is taken for 5 min now: "
        r"job \d+ \(tests.app.tasks.add, for 5 min\)\. 1 job starts before it\.", "more workers",
    ),
    "taken by lost jobs": Case(
        "busy", taken_by_lost_jobs, "are taken, 2 of 2 by lost jobs, which were given back", "more workers"
    ),
    "in line": Case(
        "wait_queue", in_line, r"wait queue of its limit key send/5, in which job \d+ is the first. 1 job of",
        r"why \d+",
    ),
    "behind": Case(
        "behind", behind,
        "Others come before it: 3 jobs of higher priorities, 1 job that was due earlier\\.",
        r"edit\(<job>, priority=1\)",
    ),
    "behind in its group": Case(
        "behind", behind_group, "1 job that was due earlier, the turn of 1 other group\\."
    ),
    "uncommitted": Case(
        "uncommitted", lambda: (worker(), waiting())[1], "no worker can see it yet", "run_jobs"
    ),
}  # fmt: skip


@pytest.mark.django_db
@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_the_reason(case: Case) -> None:
    job = case.make()
    with connection.cursor() as cursor:
        cursor.execute("SELECT code FROM pgqueue_why(%s)", [job])
        assert cursor.fetchone() == (case.code,)
    reason = why(job)
    assert reason.code == case.code
    assert re.search(case.text, str(reason)), str(reason)
    assert re.search(case.fix.replace("<job>", str(job)), reason.fix), reason.fix
    assert "%(" not in reason.text + reason.fix
    if "manage.py pgqueue" in reason.fix:
        parser = load_command_class("django_pgqueue", "pgqueue").create_parser("manage.py", "pgqueue")
        parser.parse_args(shlex.split(reason.fix.split("manage.py pgqueue")[1]))


def test_every_reason_has_a_case() -> None:
    assert set(CODES) - {case.code for case in CASES.values()} == {"locked", "ready"}
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

    BODIES.update(
        retry=raising(RetryLater(60)), snooze=raising(Snooze(HOUR)),
        sleep=lambda: current_job().sleep("nap", 3600), event=lambda: current_job().receive_event("approval"),
    )  # fmt: skip
    try:
        jobs = {name: enqueue(run_body, name) for name in ("retry", "snooze", "sleep", "event")}
        jobs["paused"] = enqueue(noop)
        pause(task=noop)
        unknown = Job.objects.create(task_path="tests.app.gone.task")
        no_task = Job.objects.create(task_path="tests.explanation.test_reasons.HOUR")
        run_due()
    finally:
        BODIES.clear()
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
