"""Progress: what a running job tells is stored within a second, and goes when the job has finished."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection

from django_pgqueue import current_job, enqueue, retry
from django_pgqueue.models import Job, JobProgress
from django_pgqueue.postgres.session import LOST_CONNECTION
from django_pgqueue.postgres.session import connect as worker_session
from django_pgqueue.tasks.progress import Progress
from django_pgqueue.worker.executor.progress import ProgressWriter
from django_pgqueue.worker.executor.progress import ReportedProgress as Telling
from django_pgqueue.worker.executor.running_job import RunningJob
from tests.app import progress_tasks as tasks
from tests.support.rows import claimed
from tests.support.sessions import Connect
from tests.support.workers import fresh, make_producer, run_due, until, working

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def bodies() -> Iterator[dict[str, Any]]:
    yield tasks.BODIES
    tasks.BODIES.clear()


@pytest.mark.parametrize(
    "task", [tasks.reports, tasks.areports, tasks.reports_in_a_thread, tasks.reports_atomically],
    ids=["sync", "async", "thread", "atomic"],
)  # fmt: skip
def test_progress_is_seen_while_the_job_runs_and_goes_with_it(task: Any) -> None:
    job = enqueue(task)
    with working(), tasks.held():
        until(lambda: fresh(job).progress is not None)
        running = fresh(job)
        assert (running.status, running.marks) == ("running", 8)
        assert running.progress == Progress(40, 100, "reading")
        assert running.progress.fraction == 0.4
    done = fresh(job)
    assert (done.status, done.progress) == ("done", None)
    assert not JobProgress.objects.exists()


@pytest.mark.promise("progress-last-word")
def test_the_last_word_is_stored_before_a_job_sleeps_and_stays(bodies: Any) -> None:
    job = enqueue(tasks.sleeps)
    run_due()
    waiting = fresh(job)
    assert (waiting.status, waiting.progress, waiting.current_step) == ("pending", Progress(1, 2), "nap")


@pytest.mark.promise("progress-last-word")
def test_the_last_word_of_an_attempt_that_failed_is_stored_and_is_in_its_error(bodies: Any) -> None:
    seen: list[Any] = []

    def fail() -> None:
        job = current_job()
        seen.append(fresh(job).progress)
        job.set_progress(job.attempts, 10, "here")
        raise ValueError

    bodies["fail"] = fail
    job = enqueue(tasks.body, "fail")
    run_due()
    failed = fresh(job)
    assert seen == [None, Progress(1, 10, "here")]
    assert [error["progress"]["done"] for error in failed.errors] == [1, 2]
    assert failed.progress == Progress(2, 10, "here")
    assert not JobProgress.objects.exists()
    assert retry(job) == 1
    assert fresh(job).progress is None


def test_a_short_job_writes_nothing(bodies: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("django_pgqueue.worker.executor.progress.WRITE_EVERY", 1e9)

    def short() -> None:
        for number in range(10):
            current_job().set_progress(number, 9)

    bodies["short"] = short
    job = enqueue(tasks.body, "short")
    run_due()
    assert (fresh(job).status, fresh(job).marks) == ("done", 0)


def test_the_current_step_is_seen_while_it_runs(bodies: Any) -> None:
    def work() -> None:
        job = current_job()
        job.step("first", str, 1)
        job.step("second", tasks.hold)

    bodies["work"] = work
    job = enqueue(tasks.body, "work")
    with working(), tasks.held():
        until(lambda: fresh(job).current_step == "second")
        assert fresh(job).marks == 1  # no progress, so no row
    assert fresh(job).current_step in {"first", "second"}


@pytest.mark.parametrize("raises", ["in the step", "from the step", "after the step"])
def test_an_error_names_its_step(bodies: Any, raises: str) -> None:
    def work() -> None:
        job = current_job()
        try:
            job.step("parse", int, "x")
        except ValueError as error:
            if raises == "in the step":
                raise
            if raises == "from the step":
                raise KeyError("other") from error
        raise KeyError("after")

    bodies["work"] = work
    job = enqueue(tasks.body, "work")
    run_due()
    steps = [error.get("step") for error in fresh(job).errors]
    assert steps == [None if raises == "after the step" else "parse"] * 2


def test_a_lost_worker_leaves_its_step_and_progress_in_the_error() -> None:
    job = enqueue(tasks.reports)
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE pgqueue_job_live SET status = 'running', on_lost = 'fail', worker = 1, lease = 5,"
            " attempts = 1 WHERE id = %s", [job.pk]
        )  # fmt: skip
        cursor.execute(
            "SELECT _pgqueue_write_progress(ARRAY[%s::bigint], '{5}', '{load}', '{4}', '{NULL}', '{x}')",
            [job.pk],
        )
        cursor.execute(
            "SELECT _pgqueue_give_back("
            "ARRAY[%s::bigint], '{5}', '{false}', '{true}', '{true}', 'gone', 0, 3, 9)",
            [job.pk],
        )
    failed = fresh(job)
    assert (failed.status, failed.errors[0]["step"], failed.progress) == (
        "failed",
        "load",
        Progress(4, None, "x"),
    )
    assert not JobProgress.objects.exists()


def test_a_list_reads_the_progress_with_the_jobs(django_assert_num_queries: Any) -> None:
    jobs = [enqueue(tasks.reports) for _ in range(3)]
    for job in jobs[:2]:
        Job.objects.filter(pk=job.pk).update(marks=8)
    JobProgress.objects.create(job=jobs[0], done=0.5)
    with django_assert_num_queries(1):
        shown = [job.progress for job in Job.objects.select_related("live_progress").order_by("pk")]
    assert shown == [Progress(0.5), None, None]
    assert list(Job.objects.filter(live_progress__done__lt=1)) == [jobs[0]]
    with django_assert_num_queries(0):
        assert jobs[2].progress is None


def telling() -> tuple[Telling, ProgressWriter]:
    writer = ProgressWriter()
    return Telling(claimed(enqueue(tasks.reports).pk), writer), writer


def test_what_is_told_while_a_writer_takes_is_taken_the_next_time() -> None:
    job, writer = telling()
    job.tell(1)
    job.hear("a", None)
    assert writer.take() == [job]
    assert job.take() == ("a", Progress(1))
    assert not writer._jobs
    job.tell(2)
    job.tell(3)
    assert writer.take() == [job]
    assert job.take() == (None, Progress(3))


def test_what_could_not_be_written_is_told_again() -> None:
    job, writer = telling()
    job.tell(1)
    job.hear("a", None)
    writer.take()
    job.take()
    job.put_back()
    assert not writer.is_urgent
    assert writer.take() == [job]
    assert job.take() == ("a", Progress(1))


@pytest.mark.parametrize(
    ("kind", "kept"), [("done", False), ("retry", True), ("wait", True), ("failed", True)]
)
def test_the_attempt_ends_while_its_last_word_cannot_be_written(kind: Any, kept: bool) -> None:
    job, writer = telling()
    job.tell(1)
    job.hear("a", None)
    writer.take()
    job.take()  # and the row is locked, by the statement with which the task falls asleep
    job.end(kind)
    job.put_back()
    assert writer.is_urgent is kept
    assert writer.take() == ([job] if kept else [])
    assert not writer.is_urgent
    job.take()
    job.put_back()  # once, because then the outcome is reported
    assert not writer._jobs


def test_the_second_try_of_the_transaction_of_an_atomic_task_writes_nothing() -> None:
    job, writer = telling()
    job.tell(1)
    job.end("done")  # but its transaction could not be serialized
    job.tell(2)
    assert writer.take() == []
    job.end("failed")
    assert job.last == Progress(2)


def test_progress_whose_row_somebody_has_locked_is_written_later(connect: Connect) -> None:
    job, writer = telling()
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE pgqueue_job_live SET status = 'running', lease = %s WHERE id = %s", [job.lease, job.id]
        )
    session, other = worker_session("default"), connect()
    job.tell(1)
    writer.write(session)
    other.execute("SELECT FROM pgqueue_progress FOR UPDATE")
    job.tell(2)
    writer.write(session)
    assert JobProgress.objects.get().done == 1
    other.rollback()
    assert writer.seconds_left(0.0) > 0
    writer.write(session)
    assert JobProgress.objects.get().done == 2
    assert not writer._jobs
    assert writer.seconds_left(0.0) == float("inf")
    session.close()


def test_progress_is_told_again_after_the_connection_was_lost() -> None:
    job, writer = telling()
    job.tell(1)
    session = worker_session("default")
    session.close()
    with pytest.raises(LOST_CONNECTION):
        writer.write(session)
    assert writer.take() == [job]
    assert job.take() == (None, Progress(1))


@pytest.mark.parametrize(
    ("kind", "urgent"),
    [("done", False), ("cancelled", False), ("failed", False), ("retry", True), ("wait", True)],
)
def test_the_last_word_is_urgent_if_the_job_is_still_there(kind: Any, urgent: bool) -> None:
    job, writer = telling()
    job.tell(1)
    job.end(kind)
    assert writer.is_urgent is urgent
    assert writer.take() == ([job] if urgent else [])


def test_a_process_that_the_task_forks_is_told_that_it_stores_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    job, writer = telling()
    writer._process += 1
    job.tell(1)
    job.tell(2)
    assert caplog.text.count("in a process that the task has forked") == 1
    assert not writer._jobs


def test_a_job_that_does_not_end_after_its_timeout_names_the_step_at_which_it_is() -> None:
    runner = make_producer()._runner
    running = RunningJob(claimed(enqueue(tasks.reports).pk), tasks.reports, 1, "default", runner.progress)
    running.progress.hear("long", None)
    running.progress.tell(1, 2)
    error = json.loads(runner.overdue(running).outcome.error or "")
    assert (error["step"], error["progress"]) == ("long", {"done": 1, "total": 2, "note": ""})
