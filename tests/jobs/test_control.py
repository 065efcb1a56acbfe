from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, connections
from django.test import override_settings
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from django_pgqueue import acancel, aretry, cancel, enqueue, enqueue_many, retry
from django_pgqueue.compat import BaseTaskBackend
from django_pgqueue.exceptions import WrongBackend
from django_pgqueue.models import Job, Queue
from django_pgqueue.models.changes import arun_now, run_now
from tests.app.tasks import elsewhere, noop
from tests.support import jobs as support
from tests.support.coroutines import run

pytestmark = pytest.mark.django_db

DAY = timedelta(days=1)
OURS = {"BACKEND": "django_pgqueue.backend.PgQueueBackend"}


def raw(alias: str = "default") -> Any:
    """Django's own psycopg connection: these tests are in its transaction."""
    connections[alias].ensure_connection()
    return connections[alias].connection


def running() -> Job:
    job = enqueue(noop)
    assert [row.id for row in support.claim(raw())] == [job.pk]
    return job


def failed() -> Job:
    job = running()
    assert support.finish(
        raw(), [job.pk], "failed", error='{"class": "E", "worker": "3"}', fingerprint="f"
    ) == [job.pk]
    return job


def fresh(job: Job) -> Job:
    return Job.objects.using(job._state.db).get(pk=job.pk)


# -- cancel


@pytest.mark.promise("cancel")
def test_what_has_not_started_is_cancelled_at_once() -> None:
    job = enqueue(noop, 1)
    assert cancel(job) == 1
    found = fresh(job)
    assert (found.status, found.shelf, found.args, found.attempts) == ("cancelled", 1, [1], 0)
    assert found.cancel_requested_at is not None
    assert found.finished_at is not None
    assert cancel(job) == 0, "it is over already"


@pytest.mark.promise("cancel")
def test_what_runs_is_asked_to_stop() -> None:
    job = running()
    assert cancel(job) == 1
    found = fresh(job)
    assert (found.status, found.shelf, found.finished_at) == ("running", 0, None)
    assert found.cancel_requested
    assert cancel(job) == 0, "it was asked already"


def test_what_is_blocked_or_to_be_retried_is_cancelled_at_once() -> None:
    again, blocked = running(), enqueue(noop)
    support.finish(raw(), [again.pk], "retry", delay=60.0)
    Job.objects.filter(pk=blocked.pk).update(status="blocked", waiting_reason="waits for job 7")
    assert cancel(blocked) + cancel(again) == 2
    assert {fresh(blocked).status, fresh(again).status} == {"cancelled"}
    assert fresh(blocked).waiting_reason == "", "it was cancelled because somebody asked for it"


def test_what_is_over_is_not_cancelled() -> None:
    job = failed()
    assert cancel(job) == 0
    assert fresh(job).status == "failed"


# -- retry


@pytest.mark.promise("id-stays", "retry")
def test_a_retry_runs_the_same_job_again_with_a_fresh_budget() -> None:
    job = failed()
    old = fresh(job)
    assert retry(job) == 1
    new = fresh(job)
    assert (new.status, new.shelf, new.pk) == ("pending", 0, job.pk)
    assert (new.attempts, new.forgiven_attempts) == (1, 1)
    assert (new.errors, new.error_fingerprint) == (old.errors, "f")
    assert (new.started_at, new.last_attempted_at, new.enqueued_at) == (
        old.started_at, old.last_attempted_at, old.enqueued_at,
    )  # fmt: skip
    for name in ("worker", "lease", "deadline", "finished_at", "result", "expires_at", "cancel_requested_at"):
        assert getattr(new, name) is None, name
    assert (new.crash_count, new.waiting_reason) == (0, "")
    assert new.run_after >= old.finished_at  # type: ignore[operator]
    assert retry(job) == 1, "it waits, so it comes first"
    assert support.claim(raw())[0].attempts == 2


@pytest.mark.parametrize("kind", ["cancelled", "failed"])
def test_whatever_did_not_succeed_can_be_retried(kind: str) -> None:
    job = running()
    support.finish(raw(), [job.pk], kind)
    assert retry(job) == 1
    assert fresh(job).status == "pending"


@pytest.mark.promise("retry-done")
def test_a_done_job_runs_again_only_if_that_is_asked_for() -> None:
    job = running()
    support.finish(raw(), [job.pk], "done", result="1")
    rows = Job.objects.filter(pk=job.pk)
    assert retry(job) == retry(rows) == rows.retry() == 0
    assert not job.retry()
    assert fresh(job).result == 1
    assert retry([job], done=True) == 1
    assert fresh(job).status == "pending"
    assert Job.objects.filter(pk=job.pk).count() == 1


def test_what_waits_comes_first_with_a_fresh_budget() -> None:
    job = running()
    support.finish(raw(), [job.pk], "retry", delay=3600.0, reason="later")
    Job.objects.filter(pk=job.pk).update(crash_count=2, expires_at=timezone.now() + DAY)
    assert retry(job) == 1
    found = fresh(job)
    assert (found.status, found.attempts, found.forgiven_attempts, found.crash_count) == ("retry", 1, 1, 0)
    assert (found.expires_at, found.waiting_reason) == (None, "")
    assert [row.id for row in support.claim(raw())] == [job.pk]


def test_what_runs_or_is_blocked_is_left_alone() -> None:
    job, blocked = running(), enqueue(noop)
    Job.objects.filter(pk=blocked.pk).update(status="blocked")
    assert retry(job) + retry(blocked) == 0
    assert (fresh(job).status, fresh(blocked).status) == ("running", "blocked")


def test_a_job_that_was_not_kept_cannot_be_retried() -> None:
    Queue.objects.create(name="default", retention=timedelta(0))
    job = enqueue(noop)
    assert cancel(job) == 1
    assert retry(job) == 0


# -- run now


@pytest.mark.promise("run-now")
def test_run_now_lets_a_job_that_waits_run_and_changes_nothing_else() -> None:
    job = running()
    support.finish(raw(), [job.pk], "retry", delay=3600.0, reason="later")
    Job.objects.filter(pk=job.pk).update(crash_count=2)
    before: dict[str, Any] = dict(Job.objects.values().get(pk=job.pk))
    assert run_now(job) == 1
    after: dict[str, Any] = dict(Job.objects.values().get(pk=job.pk))
    assert {name for name in after if after[name] != before[name]} == {"run_after", "waiting_reason"}
    assert run_now(job) == 0, "it is due"
    assert [row.id for row in support.claim(raw())] == [job.pk]
    assert run_now(job) == 0, "it runs"
    assert run_now(failed()) == 0


# -- arguments


@pytest.mark.parametrize(
    "form",
    [
        lambda job: job,
        lambda job: job.pk,
        lambda job: str(job.pk),
        lambda job: f"default:{job.pk}",
        lambda job: Job.objects.filter(pk=job.pk),
        lambda job: Job.objects.filter(pk=job.pk).order_by("-run_after"),
        lambda job: Job.objects.filter(pk=job.pk)[:5],
        lambda job: Job.objects.filter(pk=job.pk).values("status"),
        lambda job: Job.objects.filter(pk=job.pk).union(Job.objects.filter(pk=-1)),
        lambda job: Job.objects.filter(pk=job.pk).exclude(task_path__contains="%"),
    ],
)
@pytest.mark.parametrize("function", [cancel, retry])
def test_a_job_an_id_or_a_queryset_in_one_statement(
    form: Callable[[Job], Any], function: Callable[..., int]
) -> None:
    job, other = enqueue(noop), enqueue(noop)
    with CaptureQueriesContext(connection) as queries:
        assert function(form(job)) == 1
    assert len(queries) == 1
    assert fresh(other).status == "pending"
    assert fresh(job).status == ("cancelled" if function is cancel else "pending")


def test_several_jobs_of_any_form() -> None:
    jobs = enqueue_many(noop.bind(number) for number in range(6))
    result = noop.enqueue(7)
    given: list[Any] = [
        jobs[0],
        jobs.ids[1],
        str(jobs.ids[2]),
        result,
        Job.objects.filter(pk__in=jobs.ids[3:5]),
    ]
    with CaptureQueriesContext(connection) as queries:
        assert cancel(given) == 6
    assert len(queries) == 2  # one for the queryset, one for all the others
    assert retry(jobs) == 6  # the last one waits, and comes first
    assert cancel(iter(jobs.ids)) == 6
    assert cancel([]) == 0


@pytest.mark.django_db(databases=["default", "other"])
def test_jobs_of_several_databases() -> None:
    jobs = [enqueue(noop), enqueue(elsewhere, 1), enqueue(noop)]
    assert cancel(jobs) == 3
    assert {fresh(job).status for job in jobs} == {"cancelled"}


def test_the_methods_of_a_job() -> None:
    job = enqueue(noop.using(run_after=DAY))
    assert (job.run_now(), job.run_now()) == (True, False)
    assert (job.edit(priority=5), job.edit(priority=5)) == (True, False)
    assert job.why().job_id == job.pk
    assert (job.cancel(), job.cancel()) == (True, False)
    assert (job.retry(), fresh(job).status) == (True, "pending")
    assert not job.extend(60)
    assert (job.send_event("go", 5), job.send_event("go")) == (True, False)
    with pytest.raises(ValueError, match="priority"):
        job.edit(priority=1000)
    for name in ("cancel", "retry", "run_now", "edit", "extend", "send_event"):
        assert getattr(job, name).alters_data
        assert getattr(job, f"a{name}").alters_data


def test_a_result_of_django_tasks() -> None:
    result = noop.enqueue(1)
    assert cancel(result) == 1
    assert retry(result) == 1


def test_the_methods_of_querysets() -> None:
    enqueue_many(noop.bind(number) for number in range(5))
    assert Job.objects.filter(args=[3]).cancel() == 1
    assert Job.objects.all().cancel() == 4
    assert Job.objects.filter(status="cancelled").retry() == 5
    assert Job.objects.none().cancel() == 0
    assert Job.objects.filter(pk__in=[]).retry() == 0
    assert Job.objects.order_by("-id")[:2].cancel() == 2
    assert Job.objects.filter(status="pending").run_now() == 0
    assert Job.objects.all().extend(60) == 0
    for name in ("cancel", "acancel", "retry", "aretry", "run_now", "arun_now", "extend", "aextend"):
        assert not hasattr(Job.objects, name), "a manager would mean all jobs there are"
        assert getattr(Job.objects.all(), name).alters_data


@pytest.mark.django_db(databases=["default", "other"])
def test_the_database_of_the_job_its_id_or_its_queryset() -> None:
    here = enqueue(noop)
    for form in (
        lambda job: job,
        lambda job: f"other:{job.pk}",
        lambda job: Job.objects.using("other").filter(pk=job.pk),
    ):
        there = enqueue(elsewhere, 1)
        assert cancel(form(there)) == 1
        assert fresh(there).status == "cancelled"
        assert retry(form(there)) == 1
    result = elsewhere.enqueue(1)
    assert cancel(result) == 1
    with override_settings(TASKS={"default": {**OURS, "OPTIONS": {"database": "other"}}}):
        there = enqueue(elsewhere, 1)
        assert cancel(there.pk) == 1  # the number of a row, in the database that jobs go to
        assert cancel(f"default:{here.pk}") == 1
        assert retry(str(here.pk)) == 1  # a public id, of `default` if it names no database
    assert fresh(here).status == "pending"


@pytest.mark.parametrize(
    ("what", "kind", "message"),
    [
        (None, TypeError, "Expected a Job, an id"),
        (True, TypeError, "Expected a Job, an id"),
        (1.5, TypeError, "Expected a Job, an id"),
        ([1, None], TypeError, "Expected a Job, an id"),
        (b"5", TypeError, "Expected a Job, an id"),
        ("", ValueError, "is not the id of a job"),
        ("five", ValueError, "is not the id of a job"),
        (-5, ValueError, "is not the id of a job"),
        (2**63, ValueError, "is not the id of a job"),
        ("nowhere:5", ValueError, "names the database 'nowhere'"),
        (Queue.objects.all(), TypeError, "queryset of Queue does not contain jobs"),
    ],
)
@pytest.mark.parametrize("function", [cancel, retry, run_now])
def test_what_is_no_job_is_refused(
    function: Callable[..., int], what: Any, kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        function(what)


def test_a_result_of_another_backend_is_refused(settings: Any) -> None:
    settings.TASKS = {
        "default": {"BACKEND": "django_pgqueue.backend.PgQueueBackend"},
        "theirs": {"BACKEND": f"{BaseTaskBackend.__module__.rpartition('.')[0]}.dummy.DummyBackend"},
    }
    result = noop.enqueue(1)
    object.__setattr__(result, "backend", "theirs")
    with pytest.raises(WrongBackend, match="'theirs'"):
        cancel(result)


def test_an_id_that_there_is_not_changes_nothing() -> None:
    assert cancel(999_999) == retry(999_999) == run_now(999_999) == 0


@pytest.mark.django_db(transaction=True)
def test_async_code() -> None:
    async def all_of_them(job: Job) -> list[int]:
        later = await noop.using(run_after=DAY).aenqueue()
        return [
            await acancel(job),
            await aretry(job.pk),
            await Job.objects.all().acancel(),
            await Job.objects.all().aretry(),
            await arun_now(later),
            await Job.objects.all().arun_now(),
            await Job.objects.all().aextend(60),
        ]

    async def by_methods(job: Job) -> list[bool]:
        assert (await job.awhy()).job_id == job.pk
        return [
            await job.arun_now(),
            await job.aedit(priority=3),
            await job.aextend(5),
            await job.asend_event("go"),
            await job.acancel(),
            await job.aretry(),
        ]

    assert run(all_of_them(enqueue(noop))) == [1, 1, 2, 2, 0, 0, 0]
    assert run(by_methods(enqueue(noop.using(run_after=DAY)))) == [True, True, False, True, True, True]
