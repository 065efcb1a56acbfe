from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import DataError, connection, connections, transaction
from django.utils import timezone

from django_pgqueue import aedit, edit, enqueue
from django_pgqueue.models import Job
from tests.app.tasks import elsewhere, noop
from tests.support import jobs as support
from tests.support.coroutines import run
from tests.support.factories import JobFactory

pytestmark = pytest.mark.django_db

HOUR = timedelta(hours=1)


def raw() -> Any:
    connection.ensure_connection()
    return connection.connection


def fresh(job: Job) -> Job:
    return Job.objects.using(job._state.db).get(pk=job.pk)


def changed(before: Job) -> set[str]:
    """The columns that differ from the row as it was."""
    return {
        field.name
        for field in Job._meta.fields
        if getattr(before, field.name) != getattr(fresh(before), field.name)
    }


def test_what_is_left_out_stays_as_it_is() -> None:
    later = timezone.now() + HOUR
    job = fresh(enqueue(noop.using(run_after=later, priority=3)))
    assert edit(job, priority=5) == 1
    assert changed(job) == {"priority"}
    assert edit(job, queue_name="slow") == 1
    assert changed(job) == {"priority", "queue_name"}
    assert edit(job, run_after=later + HOUR) == 1
    assert changed(job) == {"priority", "queue_name", "run_after"}
    assert fresh(job).run_after == later + HOUR


def test_a_priority_of_zero_is_a_value() -> None:
    job = enqueue(noop.using(priority=7))
    assert edit(job, priority=0) == 1
    assert fresh(job).priority == 0


def test_what_is_as_wanted_is_not_counted() -> None:
    job = fresh(enqueue(noop))
    assert edit(job, priority=0, queue_name="default", run_after=timezone.now() - HOUR) == 0
    assert changed(job) == set()


def test_a_due_job_that_moves_is_due_from_now_on() -> None:
    old = timezone.now() - HOUR
    for values in ({"priority": 5}, {"queue_name": "slow"}, {"queue_name": "other", "run_after": old}):
        job = JobFactory.create(run_after=old)
        before = support.value(raw(), "SELECT clock_timestamp()")
        assert edit(job, **values) == 1
        assert fresh(job).run_after >= before


def test_a_job_that_waits_for_a_later_time_and_gets_one_in_the_past_is_due_now() -> None:
    job = JobFactory.create(retrying=True, waiting_reason="later")
    before = support.value(raw(), "SELECT clock_timestamp()")
    assert edit(job, run_after=timezone.now() - HOUR) == 1
    found = fresh(job)
    assert (found.status, found.attempts, found.waiting_reason) == ("retry", 1, "")
    assert found.run_after >= before
    assert [row.id for row in support.claim(raw())] == [job.pk]


def test_a_delay_counts_from_now_by_the_clock_of_the_database() -> None:
    job = enqueue(noop)
    assert edit(job, run_after=HOUR) == 1
    wait = support.value(raw(), "SELECT run_after - clock_timestamp() FROM pgqueue_job WHERE id = %s", job.pk)
    assert HOUR - timedelta(seconds=30) < wait <= HOUR
    assert support.claim(raw()) == []


def test_a_blocked_job_keeps_its_reason_and_its_time() -> None:
    old = timezone.now() - HOUR
    job = JobFactory.create(status="blocked", waiting_reason="at most 2 at once", run_after=old)
    assert edit(job, priority=5, queue_name="slow") == 1
    assert changed(job) == {"priority", "queue_name"}
    assert edit(job, run_after=HOUR) == 1
    assert changed(job) == {"priority", "queue_name", "run_after"}


@pytest.mark.parametrize("state", ["running", "done", "failed", "cancelled"])
@pytest.mark.promise("edit-waiting")
def test_what_does_not_wait_is_left_alone(state: str) -> None:
    job = JobFactory.create(**{state: True})
    before = fresh(job)
    assert edit(job, priority=5, run_after=HOUR, queue_name="slow") == 0
    assert changed(before) == set()


@pytest.mark.promise("edit-all-or-none")
def test_a_queryset_changes_in_one_statement() -> None:
    jobs = JobFactory.create_batch(3)
    running = JobFactory.create(running=True)
    assert Job.objects.filter(queue_name="default").edit(priority=9) == 3
    assert {fresh(job).priority for job in jobs} == {9}
    assert fresh(running).priority == 0
    assert edit(Job.objects.filter(pk=jobs[0].pk), queue_name="slow") == 1


@pytest.mark.django_db(transaction=True)
def test_edits_from_async_code() -> None:
    async def both(job: Job) -> list[int]:
        return [await aedit(job, priority=2), await Job.objects.filter(pk=job.pk).aedit(priority=3)]

    job = enqueue(noop)
    assert run(both(job)) == [1, 1]
    assert fresh(job).priority == 3


@pytest.mark.django_db(databases=["default", "other"])
def test_the_database_is_that_of_the_job() -> None:
    job = enqueue(elsewhere, 1)
    assert edit(job, priority=4) == 1
    assert fresh(job).priority == 4


BAD: list[tuple[dict[str, Any], str]] = [
    ({"priority": 101}, "priority must be a whole number between -100 and 100"),
    ({"priority": 1.5}, "priority must be a whole number"),
    ({"queue_name": ""}, "queue_name must be 1 to 100 letters"),
    ({"queue_name": "a b"}, "queue_name must be 1 to 100 letters"),
    ({"run_after": timedelta(seconds=-1)}, "run_after must not be negative"),
    ({"run_after": datetime(2030, 1, 1)}, "has no time zone"),  # noqa: DTZ001
    ({"run_after": timezone.now() + timedelta(days=40_000)}, "within 100 years"),
    ({"run_after": 5}, "must be an aware datetime or a timedelta"),
]


@pytest.mark.parametrize(("values", "words"), BAD)
@pytest.mark.promise("edit-checked")
def test_bad_values_are_refused(values: dict[str, Any], words: str) -> None:
    job = fresh(enqueue(noop))
    with pytest.raises(ValueError, match=words):
        edit(job, **values)
    with pytest.raises(ValueError, match=words):
        Job.objects.filter(pk=job.pk).edit(**values)
    assert changed(job) == set()


def test_an_edit_without_a_value_is_refused() -> None:
    with pytest.raises(TypeError, match="give it a priority, run_after or queue_name"):
        edit(1)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("priority => 101", "priority 101 must be from -100 to 100"),
        ("queue_name => ''", "queue_name '' must be 1 to 100 letters"),
        ("run_after => 'infinity'", "more than 100 years ahead"),
        ("run_after => '-infinity'", "before the year 1"),
        ("priority => NULL", "edit: give a priority, run_after or queue_name"),
    ],
)
@pytest.mark.promise("edit-checked")
def test_bad_values_are_refused_in_sql(arguments: str, words: str) -> None:
    job = fresh(enqueue(noop))
    with pytest.raises(DataError, match=words) as refusal, transaction.atomic():
        connections["default"].cursor().execute(f"SELECT pgqueue_edit(ARRAY[{job.pk}], {arguments})")
    assert getattr(refusal.value.__cause__, "sqlstate", "") == "22023"
    assert changed(job) == set()


@pytest.mark.parametrize(
    ("moment", "delay", "words"),
    [
        ("now()", "1 s", "not both"),
        ("NULL", "-1 s", "from 0 to 100 years, not -00:00:01"),
        ("NULL", "101 years", "from 0 to 100 years"),
    ],
)
def test_bad_delays_are_refused_in_sql(moment: str, delay: str, words: str) -> None:
    with pytest.raises(DataError, match=words), transaction.atomic():
        connections["default"].cursor().execute(
            f"SELECT pgqueue_edit(ARRAY[1]::bigint[], NULL, {moment}, NULL, '{delay}')"
        )
