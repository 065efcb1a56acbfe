"""The relay: what is handed over, what is refused, and what becomes of a call on the way."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import transaction

from django_pgqueue import Batch, Unique, cancel, enqueue, enqueue_many, retry, task
from django_pgqueue.compat import InvalidTask
from django_pgqueue.jobs import relay
from django_pgqueue.models import Job
from django_pgqueue.redaction import redact_call
from django_pgqueue.testing import assert_enqueued, dummy_jobs, immediate_jobs, run_jobs, run_maintenance
from tests.app.tasks import elsewhere, mail, noop, short_lived
from tests.management.test_subcommands import run
from tests.receipts.models import Reminder
from tests.receipts.tasks import remind
from tests.support.factories import WorkerFactory
from tests.support.jobs import sql

pytestmark = pytest.mark.django_db(databases=["default", "other"])

RELAY = "django_pgqueue.jobs.relay.hand_over"
RELAYED = noop.using(relay="other")


@task(unique=Unique(key=()))
def only_one() -> None:
    """Have one key for all calls."""


def there() -> Any:
    """The jobs that have arrived."""
    return Job.objects.using("other").order_by("pk")


def test_the_call_is_handed_over() -> None:
    job = enqueue(RELAYED.using(priority=7))
    assert (job.task_path, job.queue_name, job.priority, job._state.db) == (RELAY, "relay", 7, "default")
    assert not there()
    run_jobs()
    (arrived,) = there()
    job.refresh_from_db()
    assert (job.status, job.result) == ("done", f"other:{arrived.pk}")
    assert (arrived.task_path, arrived.queue_name, arrived.priority) == (noop.module_path, "default", 7)
    assert noop.get_result(str(job.result)).job == arrived


def test_many_calls_may_go_to_several_databases() -> None:
    jobs = enqueue_many([noop.bind(1), RELAYED.bind(2), noop.using(relay="default").bind(3), mail.bind(4)])
    assert [job.task_path for job in jobs] == [noop.module_path, RELAY, RELAY, mail.module_path]
    run_jobs()
    assert [job.args for job in there()] == [[2]]
    handed_over = Job.objects.get(pk=jobs[2].pk)
    assert Job.objects.get(pk=str(handed_over.result)).args == [3]  # the database of the caller itself


def test_the_options_arrive(wording: Any) -> None:
    at = datetime(2050, 1, 1, tzinfo=UTC)
    given = RELAYED.using(run_after=at, queue_name="night", metadata={"a": 1}, group_key="g", priority=20)
    enqueue(given, 1, None, "é", 2**60, 0.1, nested={"a": [True]})
    enqueue(mail.using(relay="other", max_attempts=9, unique_key="k", limit_key="l"), 5)
    run_jobs()
    names = "args kwargs metadata queue_name priority max_attempts timeout on_lost status group_key limit_key"
    assert [*there().values(*names.split(), "unique_key")] == wording
    assert there()[0].run_after == at


def test_a_delay_counts_from_the_hand_over_and_an_expiry_from_a_fixed_time() -> None:
    enqueue(RELAYED.using(run_after=timedelta(hours=1), expires_after=timedelta(hours=2)))
    enqueue(RELAYED.using(run_after=datetime(2020, 1, 1, tzinfo=UTC), expires_after=60))
    run_jobs()
    later, expired = there()
    assert later.run_after == later.enqueued_at + timedelta(hours=1)
    assert later.expires_at == later.run_after + timedelta(hours=2)
    assert abs(expired.expires_at - datetime(2020, 1, 1, 0, 1, tzinfo=UTC)) < timedelta(seconds=5)


def test_a_call_expires_on_the_way() -> None:
    job = enqueue(short_lived.using(relay="other"))
    assert job.expires_at == job.enqueued_at + timedelta(hours=2)
    Job.objects.filter(pk=job.pk).update(expires_at=job.enqueued_at)
    run_jobs()
    job.refresh_from_db()
    assert (job.status, there().count()) == ("cancelled", 0)


def test_a_taken_key_gives_its_job() -> None:
    holder = enqueue(only_one.using(database="other"))
    job = enqueue(only_one.using(relay="other"))
    run_jobs()
    job.refresh_from_db()
    assert (job.result, there().count()) == (f"other:{holder.pk}", 1)


def test_the_home_of_the_task_is_not_that_of_the_relay() -> None:
    """The caller's rows are in the database of the router, and only the caller may say otherwise."""
    assert enqueue(elsewhere.using(relay="other"), 1)._state.db == "default"
    assert enqueue(noop.using(relay="default", database="other"))._state.db == "other"


def test_a_call_that_cannot_be_handed_over_is_refused() -> None:
    elsewhere_only = only_one.using(relay="other", unique=Unique(on_conflict="raise"))
    for call, words in (
        (noop.using(relay="missing").bind(), "DATABASES has no such alias, only default, other"),
        (elsewhere_only.bind(), "the key is looked up there, later"),
        (remind.using(relay="other").bind(Reminder()), "its payload is a row here"),
    ):
        for way in (enqueue, lambda call: enqueue_many([call])):
            with pytest.raises(InvalidTask, match=words):
                way(call)


def test_parents_must_be_where_the_call_goes() -> None:
    with pytest.raises(InvalidTask, match="in the database 'default', but this call goes to 'other'"):
        enqueue(RELAYED.using(after=enqueue(noop)))
    parent = enqueue(noop.using(database="other"))
    enqueue(RELAYED.using(after=parent))
    run_jobs()
    assert [job.status for job in there()] == ["pending", "blocked"]


def test_the_other_database_may_refuse_a_call() -> None:
    """One of a batch does not hold up the others; its job fails at once, with the error."""
    batch = Batch.open(using="other")
    bad, good = enqueue_many([RELAYED.using(batch=batch).bind(), RELAYED.bind()])
    batch.close()
    run_jobs(raise_failures=False)
    assert [Job.objects.get(pk=job.pk).status for job in (bad, good)] == ["failed", "done"]
    assert bad.errors[-1]["class"].endswith("BatchFinished")


def test_a_retry_finds_what_was_handed_over() -> None:
    job = enqueue(RELAYED)
    run_jobs()
    assert retry(job, done=True) == 1
    run_jobs()
    job.refresh_from_db()
    assert (job.attempts, job.result, there().count()) == (2, f"other:{there()[0].pk}", 1)


def test_a_job_with_the_same_id_is_another_call() -> None:
    """The database of the caller is restored from a backup, and gives its ids again."""
    first = enqueue(RELAYED, 1)
    run_jobs()
    sql("DELETE FROM pgqueue_job WHERE id = %s", first.pk)
    sql("SELECT setval('pgqueue_job_id_seq', %s, false)", first.pk)
    again = enqueue(RELAYED, 2)
    assert again.pk == first.pk
    run_jobs()
    assert [job.args for job in there()] == [[1], [2]]


def test_a_restored_backup_loses_what_it_had_received() -> None:
    """Nothing notices this by itself. A retry hands the call over again, as the row is gone as well."""
    job = enqueue(RELAYED)
    run_jobs()
    sql("DELETE FROM pgqueue_job; DELETE FROM pgqueue_received", using="other")
    run_jobs()
    assert not there()
    retry(job, done=True)
    run_jobs()
    assert there().count() == 1


def test_maintenance_forgets_what_was_received_a_week_ago() -> None:
    sql("INSERT INTO pgqueue_received (id, token, job, received_at)"
        " SELECT days, gen_random_uuid(), 1, clock_timestamp() - days * interval '1 day'"
        " FROM generate_series(1, 9) AS days")  # fmt: skip
    run_maintenance()
    assert sql("SELECT array_agg(id ORDER BY id) FROM pgqueue_received WHERE id < 10") == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("cancelled", [
    lambda *jobs: cancel(jobs),
    lambda *jobs: sum(job.cancel() for job in jobs),
    lambda *jobs: cancel(Job.objects.filter(pk__in=[job.pk for job in jobs])),
    lambda *jobs: sql("SELECT cardinality(pgqueue_cancel(%s))", [job.pk for job in jobs]),
    lambda *jobs: int(re.findall(r"\d+", run("cancel", *(str(job.pk) for job in jobs), "--yes"))[0]),
], ids=["function", "method", "queryset", "sql", "command"])  # fmt: skip
def test_a_cancel_follows_the_call(cancelled: Any) -> None:
    waits, one, two, kept = enqueue_many([RELAYED.bind(number) for number in range(4)])
    assert cancelled(waits) == 1
    run_jobs()
    assert [job.args for job in there()] == [[1], [2], [3]]
    assert cancelled(one, two) == 2
    run_jobs()
    assert [job.status for job in there()] == ["cancelled", "cancelled", "pending"]
    carried = Job.objects.filter(task_path=relay.take_back.module_path).order_by("pk")
    assert [each for job in carried for each in job.result or ()] == [
        f"other:{job.pk}" for job in there()[:2]
    ]
    assert (kept.why().code, Job.objects.get(pk=one.pk).status) == ("done", "done")


def test_a_cancel_that_is_rolled_back_takes_nothing_back() -> None:
    job = enqueue(RELAYED)
    run_jobs()
    with transaction.atomic():
        cancel(job)
        transaction.set_rollback(True)
    run_jobs()
    assert there()[0].status == "pending"


def test_a_worker_that_lacks_the_alias_says_so() -> None:
    job = enqueue(relay.take_back, "gone", [])
    run_jobs(raise_failures=False)
    assert "no 'gone', only default, other" in Job.objects.get(pk=job.pk).errors[-1]["message"]


def test_why_says_where_the_call_is(wording: Any) -> None:
    job = enqueue(RELAYED)
    said = [str(job.why())]
    WorkerFactory.create()
    said.append(str(job.why()))
    run_jobs()
    said.append(str(job.why()).replace(f"other:{there()[0].pk}", "other:<id>"))
    assert "\n".join(said) == wording


def test_modes_for_tests_keep_the_call_itself() -> None:
    with dummy_jobs() as jobs:
        enqueue(RELAYED, 7)
        assert_enqueued(noop.bind(7))
        assert [job.task_path for job in jobs] == [noop.module_path]
    with immediate_jobs():
        assert enqueue(RELAYED, 7)._state.db == "other"


def test_the_arguments_of_the_call_are_redacted_by_its_own_names() -> None:
    enqueue(RELAYED.bind("visible", password="hidden"))
    (call,) = [job.args[1] for job in Job.objects.all()]
    shown = redact_call(["other", call, "token"], {}, RELAY)[0][1]
    assert (shown["args"], shown["kwargs"]) == (["visible"], {"password": "[redacted]"})
    assert call["kwargs"] == {"password": "hidden"}
