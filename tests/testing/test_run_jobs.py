"""``run_jobs`` in each kind of test, ``travel``, steps, the pytest plugin, and real workers."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from datetime import timedelta
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.db import connection, transaction
from django.test import TestCase, TransactionTestCase

from django_pgqueue import (
    RateLimit,
    RateLimiter,
    aenqueue,
    edit,
    enqueue,
    pause,
    retry,
    send_event,
    set_limit,
)
from django_pgqueue.models import Job, Pause, Schedule, ScheduleRun, Worker
from django_pgqueue.testing import (
    RunningWorker,
    arun_jobs,
    assert_enqueued,
    databases,
    pytest_plugin,
    run_jobs,
    run_maintenance,
    running,
    running_worker,
    travel,
)
from django_pgqueue.testing.factories import JobFactory, WorkerFactory
from tests.app import inline_tasks as tasks, process_tasks, step_tasks, unique_tasks
from tests.app.models import Entry
from tests.support.jobs import fetch, sql
from tests.support.workers import fresh

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _nothing_seen() -> None:
    tasks.SEEN.clear()


class InTestCase(TestCase):
    databases = {"default", "other"}

    def test_jobs_see_what_was_not_committed(self) -> None:
        Entry.objects.create(key="not committed")
        job = enqueue(tasks.acount_entries)
        (ran,) = run_jobs()
        assert (ran.id, ran.task_path, ran.outcome, ran.attempt) == (job.pk, job.task_path, "done", 1)
        assert (ran.result, ran.error) == ([1, job.pk], None)
        assert ran.job.status == "done"

    async def test_in_async_code(self) -> None:
        await aenqueue(tasks.acount_entries)
        (ran,) = await arun_jobs()
        assert ran.outcome == "done"

    def test_another_database(self) -> None:
        enqueue(tasks.see.using(database="other"), "other")
        assert run_jobs() == []
        (ran,) = run_jobs(using="other")
        assert ran.job._state.db == "other"
        assert not Worker.objects.using("other").exists()


class InTransactionTestCase(TransactionTestCase):
    def test_it_runs_what_is_due(self) -> None:
        enqueue(tasks.see, 1)
        enqueue(tasks.see.using(run_after=timedelta(hours=1)), 2)
        assert [ran.outcome for ran in run_jobs()] == ["done"]
        assert tasks.SEEN == [1]


class WithoutOther(TestCase):
    def test_a_database_that_the_test_does_not_name_is_refused_by_name(self) -> None:
        with pytest.raises(Exception, match=r"'other' are not allowed in this test.*databases"):
            run_jobs(using="other")


def test_jobs_of_jobs_run_too_and_in_order() -> None:
    enqueue(tasks.see_and_enqueue, 3)
    assert [ran.result for ran in run_jobs()] == [3, 2, 1, 0]


def test_the_first_failure_is_raised_with_the_frames_of_its_task_or_all_are_returned() -> None:
    enqueue(tasks.end, "fail")
    enqueue(tasks.end, "raise")
    behind = enqueue(tasks.see, "behind")
    with pytest.raises(tasks.Fatal) as caught:
        run_jobs()
    assert caught.traceback[-1].name == "just_end"
    assert fresh(behind).status == "pending"
    enqueue(tasks.end, "fail")
    retried, done, failed = run_jobs(raise_failures=False)
    assert (retried.outcome, type(retried.error)) == ("retry", ValueError)
    assert done.id == behind.pk
    assert (failed.outcome, type(failed.error)) == ("failed", tasks.Fatal)


@pytest.mark.parametrize("how", ["retry_later", "snooze", "cancel"])
def test_what_a_task_asks_for_is_no_failure(how: str) -> None:
    enqueue(tasks.end, how)
    assert len(run_jobs()) == 1


def test_a_retry_without_attempts_left_is_a_failure() -> None:
    job = enqueue(tasks.end, "retry_later")
    Job.objects.filter(pk=job.pk).update(max_attempts=1)
    with pytest.raises(Exception, match="retry after 60 s"):
        run_jobs()


def test_only_some_queues_and_only_so_many() -> None:
    for queue in "aabbc":
        enqueue(tasks.see.using(queue_name=queue), queue)
    run_jobs(queues="a")
    run_jobs(queues=["b", "c"], limit=2)
    assert tasks.SEEN == ["a", "a", "b", "b"]
    with pytest.raises(ValueError, match="names no queue"):
        run_jobs(queues=[])


def test_jobs_without_an_end_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "MOST_RUNS", 20)
    enqueue(tasks.see_and_enqueue, 10**9)
    with pytest.raises(RuntimeError, match=r"has run 20 jobs.*see_and_enqueue 20 times.*run_jobs\(limit="):
        run_jobs()


def test_due_schedules_fire_if_asked() -> None:
    Schedule.objects.create(name="daily", task_path=tasks.see.module_path, args=["daily"], cron="0 3 * * *")
    run_jobs(schedules=True)
    travel(days=1)
    run_jobs()
    assert tasks.SEEN == []
    # Modules of other tests may declare schedules, too.
    run_jobs(schedules=True, raise_failures=False)
    assert tasks.SEEN == ["daily"]
    run_jobs(schedules=True, raise_failures=False)
    assert tasks.SEEN == ["daily"]


@pytest.mark.parametrize("call", [run_jobs, run_maintenance, lambda: travel(hours=1)])
def test_what_is_no_test_is_refused(call: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setitem(connection.settings_dict, "NAME", "production")
        with pytest.raises(Exception, match="the database 'production' is not a test database"):
            call()
    monkeypatch.delattr("django.test.utils._TestState.saved_data")
    with pytest.raises(Exception, match="for tests only, and no test runs here"):
        call()


def test_the_connection_is_the_same_afterwards() -> None:
    sql("SET application_name TO 'the test'")
    job = enqueue(tasks.see, 1)
    with transaction.atomic():
        run_jobs()
        retry(job)
    assert sql("SHOW application_name") == "the test"
    assert connection.queries_log is not None


def test_a_job_behind_a_lost_one_is_let_go_and_may_be_put_off() -> None:
    second = enqueue(tasks.one_at_a_time, 2)
    worker = WorkerFactory.create().pk
    first = JobFactory.create(
        task=tasks.one_at_a_time, args=[1], running=True, worker=worker, limit_key=second.limit_key
    )
    run_maintenance()
    assert run_jobs() == []
    assert [fresh(job).status for job in (first, second)] == ["running", "blocked"]
    travel(minutes=5)
    run_maintenance()
    edit(second, run_after=timedelta(hours=1))
    other = enqueue(tasks.see, "other")
    assert {ran.id for ran in run_jobs()} == {first.pk, other.pk}
    travel(hours=1)
    assert [ran.id for ran in run_jobs()] == [second.pk]


# --- travel: what waits for a time comes due, and nothing else changes

TRAITS = ["scheduled", "retrying", "blocked", "running", "done", "failed", "cancelled", "expired"]


def test_delays_and_retries_come_due() -> None:
    job = enqueue(tasks.see.using(run_after=timedelta(hours=2)), "later")
    failing = enqueue(tasks.end, "raise")
    run_jobs(raise_failures=False)
    travel(hours=1, minutes=59)
    (retried,) = run_jobs(raise_failures=False)
    assert (retried.id, retried.attempt) == (failing.pk, 2)
    travel(timedelta(minutes=2))
    assert job.pk in [ran.id for ran in run_jobs(raise_failures=False)]
    assert tasks.SEEN == ["later"]


def test_all_times_of_jobs_move_and_nothing_else() -> None:
    for trait in TRAITS:
        JobFactory.create(task=tasks.see, args=[1], metadata={"a": 1}, **{trait: True})
    before: list[Any] = list(Job.objects.order_by("pk").values())
    assert travel(days=2) == timedelta(days=2)
    times = {field.attname for field in Job._meta.concrete_fields if "Date" in type(field).__name__}
    assert times >= {"run_after", "enqueued_at", "finished_at", "deadline", "expires_at"}
    for row in before:
        row.update({name: row[name] - timedelta(days=2) for name in times if row[name] is not None})
    assert list(Job.objects.order_by("pk").values()) == before


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


def test_sleeps_and_the_timeouts_of_events_end() -> None:
    sleeps = enqueue(step_tasks.sleepy)
    waits, times_out = enqueue(step_tasks.approval), enqueue(step_tasks.approval, 3600)
    run_jobs()
    assert send_event(waits, "approved", "yes")
    travel(hours=2, seconds=1)
    run_jobs(raise_failures=False)
    assert [fresh(job).result for job in (sleeps, waits)] == ["awake", "yes"]
    assert fresh(times_out).status == "failed"


@pytest.mark.parametrize(("by", "arguments", "words", "error"), [
    ([], {"hours": -1}, "ahead in time", ValueError),
    ([], {}, "more than 0", ValueError),
    ([], {"parsecs": 1}, "parsecs", TypeError),
    ([timedelta(1)], {"hours": 1}, "or its keywords", TypeError),
    ([5], {}, "takes a timedelta", TypeError),
])  # fmt: skip
def test_bad_times_are_refused(
    by: list[Any], arguments: dict[str, Any], words: str, error: type[Exception]
) -> None:
    with pytest.raises(error, match=words):
        travel(*by, **arguments)


def test_the_guard_is_in_force_afterwards() -> None:
    job = JobFactory.create(task=tasks.see, done=True)
    travel(hours=1)
    with pytest.raises(Exception, match="cannot change from done"):
        sql("UPDATE pgqueue_job SET result = '1' WHERE id = %s", job.pk)


#: Counts of whole minutes, which the next ones are added to, the groups of failures with their counts, and
#: requests for stacks, which live for seconds.
STAYS = {
    ("pgqueue_stat", "minute"), ("pgqueue_stat_rollup", "start"), ("pgqueue_stat_rollup", "updated_at"),
    ("pgqueue_depth", "minute"), ("pgqueue_failure_count", "start"), ("pgqueue_failure_group", "first_seen"),
    ("pgqueue_failure_group", "last_seen"), ("pgqueue_failure_group", "muted_at"),
    ("pgqueue_failure_note", "at"), ("pgqueue_alert", "raised_at"), ("pgqueue_alert", "over_since"),
    ("pgqueue_stack", "requested_at"), ("pgqueue_stack", "taken_at"),
}  # fmt: skip


def test_every_time_in_the_database_moves_or_stays_for_a_reason() -> None:
    times = fetch(
        "SELECT attribute.attrelid::regclass::text, attribute.attname FROM pg_attribute AS attribute"
        " JOIN pg_class AS class ON class.oid = attribute.attrelid AND NOT class.relispartition"
        " WHERE class.relname LIKE 'pgqueue%' AND class.relkind IN ('r', 'p')"
        " AND attribute.atttypid = 'timestamptz'::regtype AND NOT attribute.attisdropped"
    )
    moved = {("pgqueue_job", field.column) for field in Job._meta.concrete_fields}
    for table in re.split(r"\b(?:UPDATE|INTO) (?=pgqueue)", databases._REST_SQL)[1:]:
        name = table.split()[0]
        moved |= {(name, column) for column in re.findall(r"(\w+) - %\(by\)s", table)}
    assert set(times) - moved == STAYS


# --- The pytest plugin in projects of its own, and a real worker on the test database


BARE = """
import sys
import pytest

def test_nothing_of_django_is_imported():
    assert "django_pgqueue.testing.pytest_plugin" in sys.modules
    assert "django" not in sys.modules

@pytest.mark.skip
def test_fixtures_are_not_used(run_jobs, immediate_jobs, dummy_jobs): ...
"""


def test_pytest_finds_it_and_its_fixtures_are_described() -> None:
    (found,) = [each for each in entry_points(group="pytest11") if each.name == "django_pgqueue"]
    assert found.load() is pytest_plugin
    for name in ("run_jobs", "immediate_jobs", "dummy_jobs", "pgqueue_worker"):
        assert getattr(pytest_plugin, name).__doc__


def test_it_disturbs_no_project_without_django(tmp_path: Path) -> None:
    (tmp_path / "test_bare.py").write_text(BARE)
    root = str(Path(__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-W", "error", "-c", "/dev/null", "--rootdir", ".",
         "-p", "no:cacheprovider", "-p", pytest_plugin.__name__, "test_bare.py"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": root},
    )  # fmt: skip
    assert "1 passed, 1 skipped" in done.stdout, done.stdout + done.stderr


def test_a_failed_assertion_hides_the_frames_of_the_kit() -> None:
    with pytest.raises(AssertionError) as caught:
        assert_enqueued("shop.tasks.report")
    shown = [Path(entry.path).name for entry in caught.traceback if not entry.ishidden(caught)]
    assert shown == [Path(__file__).name]


# --- A real worker


def test_a_worker_runs_the_jobs_of_the_test_database(pgqueue_worker: RunningWorker) -> None:
    job = pgqueue_worker.join(enqueue(process_tasks.where_it_runs, "no secret"))
    assert job.result is not None
    assert job.result["database"] == connection.settings_dict["NAME"]
    failed = enqueue(tasks.end, "fail")
    assert pgqueue_worker.join(failed.pk).status == "failed"
    result = tasks.see.enqueue(1)
    assert pgqueue_worker.join(result).status == pgqueue_worker.join(result.id).status == "done"
    with pytest.raises(ValueError, match="in the database 'other', and the worker is in 'default'"):
        pgqueue_worker.join("other:5")
    assert "Fatal" in pgqueue_worker.log
    with pytest.raises(AssertionError, match=r"is pending after 0 s\n\nThe log.*\n(.|\n)*Fatal"):
        pgqueue_worker.join(enqueue(tasks.see.using(run_after=timedelta(hours=1)), 1), timeout=0)
    assert pgqueue_worker.stop() == 0
    assert not Worker.objects.exists()
    with pytest.raises(AssertionError, match="the worker has ended, and job"):
        pgqueue_worker.join(enqueue(tasks.see, 1))


@pytest.mark.django_db(transaction=True)
def test_a_worker_that_does_not_start_shows_its_log() -> None:
    with (
        pytest.raises(
            AssertionError, match=r"has ended at its start\n\nThe log of the worker:\n(.|\n)*threads"
        ),
        running_worker(threads=0),
    ):
        pass


def test_in_a_transaction_it_is_refused() -> None:
    words = r"this test is in a transaction on 'default'(.|\n)*TransactionTestCase.*run_jobs\(\)"
    with pytest.raises(ImproperlyConfigured, match=words):
        running_worker().__enter__()
