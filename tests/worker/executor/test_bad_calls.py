"""A job with arguments that its task does not accept fails at once. It may come from SQL or older code."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.db import connection

from django_pgqueue import enqueue, retry
from django_pgqueue.compat import task_finished
from django_pgqueue.models import Job
from tests.app import worker_tasks as tasks
from tests.app.models import Entry
from tests.support.workers import fresh, run_due

pytestmark = pytest.mark.django_db(transaction=True)


def from_sql(name: str, /, *args: Any, **kwargs: Any) -> int:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pgqueue_enqueue(%s, %s::jsonb, %s::jsonb)",
            [f"tests.app.worker_tasks.{name}", json.dumps(args), json.dumps(kwargs)],
        )
        pk: int = cursor.fetchone()[0]
    return pk


@pytest.mark.parametrize(
    ("name", "args", "kwargs", "words", "crashes"),
    [
        ("add", [], {}, "add() missing a required argument: 'a'", 0),
        ("add", [1, 2, 3], {}, "add(): too many positional arguments", 0),
        ("ahold", [], {"name": "x", "b": 1}, "ahold() got an unexpected keyword argument 'b'", 0),
        ("effect", ["a"], {"key": "a"}, "effect(): multiple values for argument 'key'", 0),
        ("contextual", [], {}, "contextual() missing a required argument: 'value'", 0),
        # After a crash, a job runs isolated in a separate process.
        ("ahold", [], {"name": "x", "b": 1}, "ahold() got an unexpected keyword argument 'b'", 1),
        ("effect", ["a"], {"key": "a"}, "effect(): multiple values for argument 'key'", 1),
    ],
    ids=["too few", "too many", "async", "atomic", "context", "async, isolated", "atomic, isolated"],
)
@pytest.mark.promise("bad-call-fails")
def test_it_fails_at_once(name: str, args: Any, kwargs: Any, words: str, crashes: int) -> None:
    pk = from_sql(name, *args, **kwargs)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE pgqueue_job_live SET crash_count = %s WHERE id = %s", [crashes, pk])
    run_due()
    failed = fresh(pk)
    assert (failed.status, failed.attempts, len(failed.errors)) == ("failed", 1, 1)
    assert failed.max_attempts != 1
    (error,) = failed.errors
    assert (error["class"], error["message"]) == ("builtins.TypeError", f"tests.app.worker_tasks.{words}")
    # The error was not raised by code of the task.
    assert error["traceback"] == f"TypeError: tests.app.worker_tasks.{words}\n"
    assert len(failed.error_fingerprint) == 40
    assert not Entry.objects.exists()


@pytest.mark.promise("bad-call-fails")
def test_retry_on_does_not_matter() -> None:
    pk = from_sql("choosy", "type", "and more")  # this is only retried for a LookupError
    other = from_sql("calls_wrongly")  # this is retried for all exceptions
    run_due()
    assert (fresh(pk).status, fresh(pk).attempts) == ("failed", 1)
    assert (fresh(other).status, fresh(other).attempts) == ("failed", 1)
    assert tasks.SEEN == []


def test_a_type_error_of_the_body_is_retried() -> None:
    """This holds even for an error with the same message about the same task."""
    job = enqueue(tasks.calls_wrongly, 5)
    run_due()
    failed = fresh(job)
    assert (failed.status, failed.attempts, tasks.SEEN) == ("failed", 3, [5, 5, 5])
    assert {error["class"] for error in failed.errors} == {"builtins.TypeError"}
    assert "in calls_wrongly\n" in failed.errors[0]["traceback"]


def test_an_argument_that_the_task_has_lost_meanwhile() -> None:
    job = enqueue(tasks.add, 1, b=2)
    Job.objects.filter(pk=job.pk).update(task_path="tests.app.worker_tasks.fail")
    run_due()
    failed = fresh(job)
    assert (failed.status, failed.attempts) == ("failed", 1)
    # A deployment adds the argument again, and somebody retries the job by hand.
    assert retry(job) == 1
    Job.objects.filter(pk=job.pk).update(task_path="tests.app.worker_tasks.add")
    run_due()
    assert (fresh(job).status, fresh(job).result) == ("done", 3)


def test_its_signal_is_sent() -> None:
    seen: list[Any] = []

    def receiver(sender: Any, task_result: Any, **kwargs: Any) -> None:
        seen.append(task_result.errors[-1].exception_class)

    task_finished.connect(receiver)
    try:
        from_sql("add")
        run_due()
    finally:
        task_finished.disconnect(receiver)
    assert seen == [TypeError]


def test_arguments_that_only_sql_can_store_fail_it_at_once() -> None:
    """Python reads whole numbers with up to 4,300 digits, and it stores no others."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pgqueue_enqueue('tests.app.worker_tasks.add', args => '[1, 1e5000]'),"
            " pgqueue_enqueue('tests.app.worker_tasks.backend', metadata => '{\"a\": 1e5000}')"
        )
        number, other = cursor.fetchone()
    run_due()
    failed = fresh(number)
    assert (failed.status, failed.attempts, failed.args[0]) == ("failed", 1, 1)
    assert failed.errors[0]["class"] == "builtins.ValueError"
    assert (fresh(other).status, fresh(other).metadata) == ("done", {"a": "<a number with 5,001 digits>"})
