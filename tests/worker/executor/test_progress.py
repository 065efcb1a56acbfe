"""Progress: what a running job tells is stored within a second, and goes when the job has finished."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from django_pgqueue import current_job, enqueue, retry
from django_pgqueue.models import Job, JobProgress
from django_pgqueue.postgres.session import LOST_CONNECTION, connect as worker_session
from django_pgqueue.tasks.progress import Progress
from django_pgqueue.worker.executor.progress import ProgressWriter, ReportedProgress as Telling
from django_pgqueue.worker.executor.running_job import RunningJob
from tests.app import step_tasks as tasks
from tests.support.factories import JobFactory, claimed
from tests.support.jobs import sql
from tests.support.sessions import Connect
from tests.support.workers import fresh, make_producer, ran, run_due, until, working

pytestmark = pytest.mark.django_db

committed = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def bodies() -> Iterator[dict[str, Any]]:
    yield tasks.BODIES
    tasks.BODIES.clear()


@committed
def test_progress_and_step_are_seen_while_the_job_runs_and_progress_goes_with_it(bodies: Any) -> None:
    def work() -> None:
        job = current_job()
        job.step("first", str, 1)
        job.step("second", tasks.hold)

    bodies["work"] = work
    telling: list[Any] = [
        tasks.reports, tasks.areports, tasks.reports_in_a_thread, tasks.reports_atomically,
    ]  # fmt: skip
    jobs, steps = [enqueue(task) for task in telling], enqueue(tasks.body, "work")
    with working(threads=6), tasks.held():
        until(lambda: all(fresh(job).progress for job in jobs))
        for job in map(fresh, jobs):
            assert (job.status, job.marks) == ("running", 8)
            assert job.progress == Progress(40, 100, "reading")
            assert job.progress.fraction == 0.4
        until(lambda: fresh(steps).current_step == "second")
        assert fresh(steps).marks == 1  # no progress, so no row
    assert [(fresh(job).status, fresh(job).progress) for job in jobs] == [("done", None)] * len(jobs)
    assert fresh(steps).current_step in {"first", "second"}
    assert not JobProgress.objects.exists()


@pytest.mark.promise("progress-last-word")
def test_the_last_word_is_stored_before_a_job_sleeps_and_stays() -> None:
    waiting = ran(tasks.sleeps.bind())
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
    failed = ran(tasks.body.bind("fail"))
    assert seen == [None, Progress(1, 10, "here")]
    assert [error["progress"]["done"] for error in failed.errors] == [1, 2]
    assert failed.progress == Progress(2, 10, "here")
    assert not JobProgress.objects.exists()
    assert retry(failed) == 1
    assert fresh(failed).progress is None


@committed
def test_a_short_job_writes_nothing(bodies: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("django_pgqueue.worker.executor.progress.WRITE_EVERY", 1e9)

    def short() -> None:
        for number in range(10):
            current_job().set_progress(number, 9)

    bodies["short"] = short
    job = enqueue(tasks.body, "short")
    run_due()
    assert (fresh(job).status, fresh(job).marks) == ("done", 0)


@pytest.mark.parametrize("raises", ["in the step", "from the step", "after the step"])
def test_an_error_names_its_step(bodies: Any, raises: str) -> None:
    def work() -> None:
        try:
            current_job().step("parse", int, "x")
        except ValueError as error:
            if raises == "in the step":
                raise
            if raises == "from the step":
                raise KeyError("other") from error
        raise KeyError("after")

    bodies["work"] = work
    steps = [error.get("step") for error in ran(tasks.body.bind("work")).errors]
    assert steps == [None if raises == "after the step" else "parse"] * 2


def test_a_lost_worker_leaves_its_step_and_progress_in_the_error() -> None:
    job = JobFactory.create(running=True, on_lost="fail", lease=5)
    sql("SELECT _pgqueue_write_progress(%s, '{5}', '{load}', '{4}', '{NULL}', '{x}')", [job.pk])
    sql("SELECT _pgqueue_give_back(%s, '{5}', '{f}', '{t}', '{t}', 'gone', 0, 3, 9)", [job.pk])
    failed = fresh(job)
    assert (failed.status, failed.errors[0]["step"]) == ("failed", "load")
    assert failed.progress == Progress(4, None, "x")
    assert not JobProgress.objects.exists()


def test_a_list_reads_the_progress_with_the_jobs(django_assert_num_queries: Any) -> None:
    jobs = [enqueue(tasks.reports) for _ in range(3)]
    Job.objects.filter(pk__in=[job.pk for job in jobs[:2]]).update(marks=8)
    JobProgress.objects.create(job=jobs[0], done=0.5)
    with django_assert_num_queries(1):
        shown = [job.progress for job in Job.objects.select_related("live_progress").order_by("pk")]
    assert shown == [Progress(0.5), None, None]
    assert list(Job.objects.filter(live_progress__done__lt=1)) == [jobs[0]]
    with django_assert_num_queries(0):
        assert jobs[2].progress is None


def test_a_job_that_does_not_end_after_its_timeout_names_the_step_at_which_it_is() -> None:
    runner = make_producer()._runner
    running = RunningJob(claimed(), tasks.reports, 1, "default", runner.progress)
    running.progress.hear("long", None)
    running.progress.report(1, 2)
    error = json.loads(runner.overdue(running).outcome.error or "")
    assert (error["step"], error["progress"]) == ("long", {"done": 1, "total": 2, "note": ""})


# -- what a job tells while a writer writes


@pytest.fixture
def writer() -> ProgressWriter:
    return ProgressWriter()


@pytest.fixture
def job(writer: ProgressWriter) -> Telling:
    return Telling(claimed(), writer)


@pytest.mark.parametrize(
    ("kind", "is_kept"),
    [("done", False), ("cancelled", False), ("failed", True), ("retry", True), ("wait", True)],
)
def test_the_attempt_ends_while_its_last_word_cannot_be_written(
    kind: Any, is_kept: bool, job: Telling, writer: ProgressWriter
) -> None:
    job.report(1)
    job.hear("a", None)
    writer.take()
    job.take()  # and the row is locked, by the statement with which the task falls asleep
    job.end(kind)
    job.put_back()
    assert writer.is_urgent is is_kept
    assert writer.take() == ([job] if is_kept else [])
    assert not writer.is_urgent
    job.take()
    job.put_back()  # once, because then the outcome is reported
    assert not writer._jobs


def test_the_second_try_of_the_transaction_of_an_atomic_task_writes_nothing(
    job: Telling, writer: ProgressWriter
) -> None:
    job.report(1)
    job.end("done")  # but its transaction could not be serialized
    job.report(2)
    assert writer.take() == []
    job.end("failed")
    assert job.last == Progress(2)


@committed
def test_progress_whose_row_somebody_has_locked_is_written_later(
    writer: ProgressWriter, connect: Connect
) -> None:
    job = Telling(claimed(JobFactory.create(running=True, lease=claimed().lease).pk), writer)
    session, other = worker_session("default"), connect()
    job.report(1)
    writer.write(session)
    other.execute("SELECT FROM pgqueue_progress FOR UPDATE")
    job.report(2)
    writer.write(session)
    assert JobProgress.objects.get().done == 1
    other.rollback()
    assert writer.seconds_left(0.0) > 0
    writer.write(session)
    assert JobProgress.objects.get().done == 2
    assert not writer._jobs
    assert writer.seconds_left(0.0) == float("inf")
    session.close()


def test_progress_is_told_again_after_the_connection_was_lost(job: Telling, writer: ProgressWriter) -> None:
    job.report(1)
    session = worker_session("default")
    session.close()
    with pytest.raises(LOST_CONNECTION):
        writer.write(session)
    assert writer.take() == [job]
    assert job.take() == (None, Progress(1))


def test_a_process_that_the_task_forks_is_told_that_it_stores_nothing(
    job: Telling, writer: ProgressWriter, caplog: pytest.LogCaptureFixture
) -> None:
    writer._process += 1
    job.report(1)
    job.report(2)
    assert caplog.text.count("in a process that the task has forked") == 1
    assert not writer._jobs
