"""A job with an unknown task waits visibly for a worker that knows the task, and fails in the end."""

from __future__ import annotations

import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from django_pgqueue import enqueue, retry
from django_pgqueue.models import Job
from tests.app import worker_tasks as tasks
from tests.support.workers import fresh, run_due, until, working

pytestmark = pytest.mark.django_db(transaction=True)


def unknown(path: str = "tests.app.worker_tasks.not_yet_deployed") -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pgqueue_enqueue(%s)", [path])
        pk: int = cursor.fetchone()[0]
    return pk


@pytest.mark.parametrize(
    "path",
    ["tests.app.worker_tasks.not_yet_deployed", "tests.app.no_such_module.task", "no_such_package.tasks.x",
     "tests.app.worker_tasks.Entry"],
)  # fmt: skip
def test_it_goes_back_with_a_delay_and_a_reason(path: str) -> None:
    pk = unknown(path)
    other = enqueue(tasks.noop)
    before = timezone.now()
    run_due()
    back = fresh(pk)
    assert (back.status, back.attempts, back.errors) == ("pending", 0, [])
    assert path in back.waiting_reason
    assert timedelta(seconds=29) < back.run_after - before < timedelta(seconds=60)
    assert fresh(other).status == "done"


@pytest.mark.parametrize("path", ["this.s", "json.tool.main", "tests_of_somebody.tasks.run"])
@pytest.mark.promise("only-modules-of-tasks")
def test_a_module_that_is_not_of_the_project_is_not_imported(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To import a module is to run it, and whoever may enqueue chooses the path."""
    (tmp_path / "tests_of_somebody").mkdir()
    (tmp_path / "tests_of_somebody" / "tasks.py").write_text("raise SystemExit('it was imported')")
    monkeypatch.syspath_prepend(tmp_path)
    module = path.rpartition(".")[0]
    sys.modules.pop(module, None)
    pk = unknown(path)
    run_due()
    assert module not in sys.modules
    back = fresh(pk)
    assert (back.status, back.attempts) == ("pending", 0)
    assert "is not imported because of a job" in back.waiting_reason


def test_an_object_that_is_no_task_is_not_called() -> None:
    """Also if its module is imported: everything that a worker needs is."""
    pks = [unknown(path) for path in ("os.getcwd", "tests.app.worker_tasks.reset", "builtins.exec")]
    run_due()
    assert {fresh(pk).status for pk in pks} == {"pending"}
    assert all("is not a task" in fresh(pk).waiting_reason for pk in pks)


@pytest.mark.promise("unknown-task")
def test_it_fails_when_the_patience_is_over(settings: Any) -> None:
    settings.PGQUEUE = {"UNKNOWN_TASK_TIMEOUT": 0.5}
    pk = unknown()
    with working() as worker:
        failed = until(lambda: job if (job := fresh(pk)).is_finished else None)
    assert (failed.status, failed.errors[0]["class"]) == ("failed", "django_pgqueue.exceptions.UnknownTask")
    assert "not_yet_deployed" in failed.errors[0]["message"]
    assert failed.waiting_reason.startswith("no worker knew the task")
    assert failed.finished_at is not None
    assert failed.finished_at - failed.enqueued_at > timedelta(seconds=0.5)
    # The job was checked a few times, not in a loop.
    assert worker.producer.lifetime.claimed < 8


def test_the_patience_begins_with_the_first_worker_that_met_it(settings: Any) -> None:
    settings.PGQUEUE = {"UNKNOWN_TASK_TIMEOUT": 3600}
    pk = unknown()
    run_due()
    Job.objects.update(started_at=timezone.now() - timedelta(hours=2), run_after=timezone.now())
    run_due()
    assert fresh(pk).status == "failed"


def test_a_job_that_has_run_before_has_the_whole_patience() -> None:
    """The job first started long ago, but its task has become unknown only now."""
    job = enqueue(tasks.slow_backoff)
    run_due()
    long_ago = timezone.now() - timedelta(days=1)
    Job.objects.update(task_path="tests.app.gone.task", started_at=long_ago, run_after=timezone.now())
    run_due()
    back = fresh(job)
    assert (back.status, back.attempts, back.started_at) == ("retry", 1, long_ago)
    assert "tests.app.gone.task" in back.waiting_reason


def test_it_runs_once_a_worker_knows_it() -> None:
    pk = unknown()
    run_due()
    Job.objects.update(task_path="tests.app.worker_tasks.noop", run_after=timezone.now())
    run_due()
    done = fresh(pk)
    assert (done.status, done.attempts, done.waiting_reason) == ("done", 1, "")


def test_after_it_failed_it_can_be_retried(settings: Any) -> None:
    settings.PGQUEUE = {"UNKNOWN_TASK_TIMEOUT": 0}
    pk = unknown()
    run_due()
    assert fresh(pk).status == "failed"
    settings.PGQUEUE = {}
    assert retry(pk) == 1
    run_due()
    assert fresh(pk).status == "retry"
    Job.objects.update(task_path="tests.app.worker_tasks.noop", run_after=timezone.now())
    run_due()
    assert fresh(pk).status == "done"
