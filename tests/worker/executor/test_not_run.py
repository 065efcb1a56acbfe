"""Jobs that a worker claims but does not run: they have expired, or their task is unknown or does not take
their arguments. The last two may come from SQL or from older code.
"""

from __future__ import annotations

import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone
from syrupy.assertion import SnapshotAssertion

from django_pgqueue import enqueue, retry
from django_pgqueue.models import DeclaredTask, Job
from tests.app import worker_tasks as tasks
from tests.app.models import Entry
from tests.support.factories import ago
from tests.support.jobs import sql
from tests.support.workers import fresh, ran, run_here

pytestmark = pytest.mark.django_db

HERE = "tests.app.worker_tasks"
UNKNOWN = f"{HERE}.not_yet_deployed"


def from_sql(path: str, args: str = "[]", kwargs: str = "{}", **changes: Any) -> int:
    """Enqueue without the checks of Python."""
    pk = int(sql("SELECT pgqueue_enqueue(%s, %s::jsonb, %s::jsonb)", path, args, kwargs))
    Job.objects.filter(pk=pk).update(**changes)
    return pk


def run_again(**changes: Any) -> None:
    """Run the jobs that have waited, after changes that time or somebody makes."""
    Job.objects.update(run_after=timezone.now(), **changes)
    run_here()


# -- expired


@pytest.mark.promise("expiry")
def test_an_expired_job_is_cancelled_with_a_reason_and_a_retry_runs_it() -> None:
    job = enqueue(tasks.perishable)
    run_again(expires_at=ago(seconds=1))
    ended = fresh(job)
    assert (ended.status, ended.started_at, ended.attempts, tasks.SEEN) == ("cancelled", None, 0, [])
    assert ended.duration is None
    assert ended.waiting_reason.startswith("expired at 20")
    assert retry(job) == 1
    run_here()
    assert (fresh(job).status, tasks.SEEN) == ("done", ["ran"])


@pytest.mark.parametrize("hours", [0, 2], ids=["in time", "too late"])
def test_a_job_from_sql_expires_by_its_task_although_the_database_does_not_know_it(hours: int) -> None:
    DeclaredTask.objects.all().delete()
    since = ago(hours=hours)
    pk = from_sql(f"{HERE}.perishable", enqueued_at=since, run_after=since)
    assert fresh(pk).expires_at is None
    run_here()
    ended = fresh(pk)
    assert (ended.status, tasks.SEEN) == (("cancelled", []) if hours else ("done", ["ran"]))
    assert ended.expires_at == since + timedelta(hours=1)


def test_a_job_that_expires_before_a_retry_keeps_what_its_first_attempt_left() -> None:
    tried = ran(tasks.sequence_backoff.bind())
    assert (tried.status, tried.attempts) == ("retry", 1)
    run_again(expires_at=timezone.now())
    ended = fresh(tried)
    assert (ended.status, ended.attempts, ended.started_at) == ("cancelled", 1, tried.started_at)
    assert len(ended.errors) == 1


# -- unknown


# The modules of the last three are not the project's. To import one is to run it, and whoever may enqueue
# chooses the path.
UNKNOWNS = [
    UNKNOWN, f"{HERE}.Entry", "builtins.exec", "this.s", "json.tool.main", "tests_of_somebody.tasks.run",
]  # fmt: skip


@pytest.mark.promise("only-modules-of-tasks")
def test_a_job_with_an_unknown_task_goes_back_with_a_delay_and_a_reason_and_imports_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wording: SnapshotAssertion
) -> None:
    (tmp_path / "tests_of_somebody").mkdir()
    (tmp_path / "tests_of_somebody" / "tasks.py").write_text("raise SystemExit('it was imported')")
    monkeypatch.syspath_prepend(tmp_path)
    modules = {path.rpartition(".")[0] for path in UNKNOWNS[3:]}
    for module in modules:
        sys.modules.pop(module, None)
    jobs, before = [from_sql(path) for path in UNKNOWNS], timezone.now()
    run_here()
    assert modules.isdisjoint(sys.modules)
    for back in map(fresh, jobs):
        assert (back.status, back.attempts, back.errors) == ("pending", 0, [])
        assert timedelta(seconds=29) < back.run_after - before < timedelta(seconds=60)
    assert "\n".join(fresh(job).waiting_reason for job in jobs) == wording
    run_again(task_path=f"{HERE}.noop")
    ends = {(job.status, job.attempts, job.waiting_reason) for job in map(fresh, jobs)}
    assert ends == {("done", 1, "")}, "it runs once a worker knows it"


@pytest.mark.promise("unknown-task")
def test_it_fails_when_the_patience_is_over_and_a_retry_waits_again(settings: Any) -> None:
    """The patience begins when a worker first meets the job."""
    settings.PGQUEUE = {"UNKNOWN_TASK_TIMEOUT": 1_800}
    pk = from_sql(UNKNOWN, enqueued_at=ago(hours=1))
    run_here()
    back = fresh(pk)
    # It is looked at a few times, not in a loop.
    assert (back.status, back.run_after > timezone.now()) == ("pending", True)
    run_again(started_at=ago(seconds=1_801))
    failed = fresh(pk)
    assert (failed.status, failed.errors[0]["class"]) == ("failed", "django_pgqueue.exceptions.UnknownTask")
    assert "not_yet_deployed" in failed.errors[0]["message"]
    assert failed.waiting_reason.startswith("no worker knew the task")
    assert failed.finished_at is not None
    assert retry(pk) == 1
    run_here()
    assert fresh(pk).status == "retry"
    run_again(task_path=f"{HERE}.noop")
    assert fresh(pk).status == "done"


def test_a_job_that_has_run_before_has_the_whole_patience() -> None:
    """The job first started long ago, but its task has become unknown only now."""
    job, long_ago = ran(tasks.slow_backoff.bind()), ago(days=1)
    run_again(task_path="tests.app.gone.task", started_at=long_ago)
    back = fresh(job)
    assert (back.status, back.attempts, back.started_at) == ("retry", 1, long_ago)
    assert "tests.app.gone.task" in back.waiting_reason


# -- called wrongly


WRONG = {
    "too few": ("add", "[]", "{}"), "too many": ("add", "[1, 2, 3]", "{}"),
    "async": ("ahold", "[]", '{"name": "x", "b": 1}'), "atomic": ("effect", '["a"]', '{"key": "a"}'),
    "context": ("contextual", "[]", "{}"), "retry_on says no": ("choosy", '["type", "x"]', "{}"),
    "retry_on says yes": ("calls_wrongly", "[]", "{}"),
}  # fmt: skip


@pytest.mark.promise("bad-call-fails")
def test_arguments_that_do_not_fit_fail_the_job_at_once(wording: SnapshotAssertion) -> None:
    jobs = [from_sql(f"{HERE}.{name}", args, kwargs) for name, args, kwargs in WRONG.values()]
    run_here()
    for failed in map(fresh, jobs):
        assert (failed.status, failed.attempts, len(failed.errors)) == ("failed", 1, 1)
        assert (failed.max_attempts != 1, len(failed.error_fingerprint)) == (True, 40)
    assert tasks.SEEN == []
    assert not Entry.objects.exists()
    # The errors were not raised by code of the task.
    assert "".join(fresh(job).errors[0]["traceback"] for job in jobs) == wording


def test_a_type_error_of_the_body_is_retried() -> None:
    """This holds even for an error with the same message about the same task."""
    failed = ran(tasks.calls_wrongly.bind(5))
    assert (failed.status, failed.attempts, tasks.SEEN) == ("failed", 3, [5, 5, 5])
    assert {error["class"] for error in failed.errors} == {"builtins.TypeError"}
    assert "in calls_wrongly\n" in failed.errors[0]["traceback"]


def test_arguments_that_only_sql_can_store_fail_it_at_once() -> None:
    """Python reads whole numbers with up to 4,300 digits, and it stores no others."""
    number = from_sql(f"{HERE}.add", "[1, 1e5000]")
    other = sql(f"SELECT pgqueue_enqueue('{HERE}.backend', metadata => '{{\"a\": 1e5000}}')")
    run_here()
    failed = fresh(number)
    assert (failed.status, failed.attempts, failed.args[0]) == ("failed", 1, 1)
    assert failed.errors[0]["class"] == "builtins.ValueError"
    assert (fresh(other).status, fresh(other).metadata) == ("done", {"a": "<a number with 5,001 digits>"})
