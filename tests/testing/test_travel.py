"""``travel``: what waits for a time comes due, and nothing else changes."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection

from django_pgqueue import RateLimit, RateLimiter, enqueue, pause, set_limit
from django_pgqueue.models import Job, Pause, ScheduleRun
from django_pgqueue.testing import databases, run_jobs, run_maintenance, travel
from django_pgqueue.testing.factories import JobFactory
from tests.app import inline_tasks as tasks
from tests.app import unique_tasks
from tests.support.workers import fresh

pytestmark = pytest.mark.django_db

TRAITS = ["scheduled", "retrying", "blocked", "running", "done", "failed", "cancelled", "expired"]


def test_delays_and_retries_come_due() -> None:
    tasks.SEEN.clear()
    job = enqueue(tasks.see.using(run_after=timedelta(hours=2)), "later")
    failing = enqueue(tasks.end, "raise")
    run_jobs(raise_failures=False)
    travel(hours=1, minutes=59)
    (retried,) = run_jobs(raise_failures=False)
    assert (retried.id, retried.attempt) == (failing.pk, 2)
    travel(timedelta(minutes=2))
    assert job.pk in [ran.id for ran in run_jobs(raise_failures=False)]
    assert tasks.SEEN == ["later"]


def test_jobs_expire() -> None:
    job = enqueue(tasks.expiring)
    travel(hours=2)
    assert [ran.outcome for ran in run_jobs()] == ["cancelled"]
    assert "expired" in fresh(job).waiting_reason


def row(job: Job) -> dict[str, Any]:
    return dict(Job.objects.values().get(pk=job.pk))


@pytest.mark.parametrize("trait", TRAITS)
def test_all_times_of_a_job_move_and_nothing_else(trait: str) -> None:
    job = JobFactory.create(task=tasks.see, args=[1], metadata={"a": 1}, **{trait: True})
    before = row(job)
    assert travel(days=2) == timedelta(days=2)
    after = row(job)
    times = {field.attname for field in Job._meta.concrete_fields if "Date" in type(field).__name__}
    assert times >= {"run_after", "enqueued_at", "finished_at", "deadline", "expires_at"}
    for name, value in before.items():
        moved = name in times and value is not None
        assert after[name] == (value - timedelta(days=2) if moved else value), name


def test_retention_comes_to_its_end() -> None:
    kept = [JobFactory.create(task=tasks.see, **{trait: True}) for trait in ("done", "failed")]
    travel(days=8)
    run_maintenance()
    assert list(Job.objects.values_list("pk", flat=True)) == [kept[1].pk]
    travel(days=31)
    run_maintenance()
    assert not Job.objects.exists()


def test_windows_of_unique_keys_end() -> None:
    job = enqueue(unique_tasks.remind, 1)
    run_jobs()
    assert enqueue(unique_tasks.remind, 1).enqueue_outcome == "existing"
    travel(minutes=61)
    again = enqueue(unique_tasks.remind, 1)
    assert again.enqueue_outcome == "created"
    assert again.pk != job.pk


def test_rates_allow_new_starts() -> None:
    set_limit(name="mail", rate_limit=RateLimit(1, per=timedelta(hours=1)))
    assert [RateLimiter("mail").take() for _ in range(2)] == [True, False]
    travel(hours=1)
    assert RateLimiter("mail").take()
    enqueue(tasks.rated, 1)
    enqueue(tasks.rated, 2)
    assert len(run_jobs()) == 1
    travel(hours=1)
    assert len(run_jobs()) == 1


def test_pauses_end() -> None:
    pause(task=tasks.see, duration=timedelta(hours=1))
    enqueue(tasks.see, 1)
    assert run_jobs() == []
    travel(hours=2)
    assert len(run_jobs()) == 1
    run_maintenance()
    assert not Pause.objects.exists()


def test_declared_schedules_are_due_after_a_while_and_runs_move(settings: Any) -> None:
    hourly = {
        "task": tasks.see.module_path, "args": ["hourly"], "every": timedelta(hours=1), "catch_up": "all",
        "overlap": "allow",
    }  # fmt: skip
    settings.PGQUEUE = {"SCHEDULES": {"hourly": hourly}}

    def ran() -> int:
        # Other tests may have left tasks with schedules of their own.
        return sum(job.task_path == tasks.see.module_path for job in run_jobs(schedules=True))

    travel(hours=3)
    # The full hour may pass at this moment.
    assert ran() in {3, 4}
    runs = list(ScheduleRun.objects.order_by("run_at").values_list("run_at", flat=True))
    travel(hours=1)
    moved = ScheduleRun.objects.order_by("run_at").values_list("run_at", flat=True)
    assert [run - timedelta(hours=1) for run in runs] == list(moved)
    assert ran() in {1, 2}


@pytest.mark.parametrize(
    ("arguments", "words", "error"),
    [
        ({"hours": -1}, "ahead in time", ValueError),
        ({}, "more than 0", ValueError),
        ({"parsecs": 1}, "parsecs", TypeError),
    ],
)
def test_bad_times_are_refused(arguments: dict[str, Any], words: str, error: type[Exception]) -> None:
    with pytest.raises(error, match=words):
        travel(**arguments)


def test_both_forms_at_once_are_refused() -> None:
    with pytest.raises(TypeError, match="or its keywords"):
        travel(timedelta(1), hours=1)
    with pytest.raises(TypeError, match="takes a timedelta"):
        travel(5)  # type: ignore[arg-type]


def test_the_guard_is_in_force_afterwards() -> None:
    job = JobFactory.create(task=tasks.see, done=True)
    travel(hours=1)
    with pytest.raises(Exception, match="cannot change from done"), connection.cursor() as cursor:
        cursor.execute("UPDATE pgqueue_job SET result = '1' WHERE id = %s", [job.pk])


#: Counts of whole minutes, which the next ones are added to, and the groups of failures with their counts.
STAYS = {
    ("pgqueue_stat", "minute"), ("pgqueue_stat_rollup", "start"), ("pgqueue_stat_rollup", "updated_at"),
    ("pgqueue_failure_count", "start"), ("pgqueue_failure_group", "first_seen"),
    ("pgqueue_failure_group", "last_seen"), ("pgqueue_failure_group", "muted_at"),
    ("pgqueue_failure_note", "at"), ("pgqueue_alert", "raised_at"), ("pgqueue_alert", "over_since"),
}  # fmt: skip


def test_every_time_in_the_database_moves_or_stays_for_a_reason() -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT attribute.attrelid::regclass::text, attribute.attname FROM pg_attribute AS attribute"
            " JOIN pg_class AS class ON class.oid = attribute.attrelid AND NOT class.relispartition"
            " WHERE class.relname LIKE 'pgqueue%' AND class.relkind IN ('r', 'p')"
            " AND attribute.atttypid = 'timestamptz'::regtype AND NOT attribute.attisdropped"
        )
        times = set(cursor.fetchall())
    moved = {("pgqueue_job", field.column) for field in Job._meta.concrete_fields}
    for table in re.split(r"\b(?:UPDATE|INTO) (?=pgqueue)", databases._REST_SQL)[1:]:
        name = table.split()[0]
        moved |= {(name, column) for column in re.findall(r"(\w+) - %\(by\)s", table)}
    assert times - moved == STAYS
