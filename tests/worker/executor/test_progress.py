"""Progress and logs: what a running job tells is stored within a second, and what of it is kept when it
ends.
"""

from __future__ import annotations

import asyncio
import io
import json
import logging
import sys
from collections.abc import AsyncIterator, Iterator
from decimal import Decimal
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import pytest

from django_pgqueue import current_job, enqueue, retry, track
from django_pgqueue.jobs.current import RUNNING
from django_pgqueue.models import Job, JobProgress
from django_pgqueue.postgres.session import LOST_CONNECTION, connect as worker_session
from django_pgqueue.tasks.progress import Progress, progress_of, stored_progress
from django_pgqueue.testing import fake_job, reported_progress
from django_pgqueue.worker.executor.progress import ProgressWriter, ReportedProgress as Telling
from django_pgqueue.worker.executor.running_job import _HANDLER, LogCapture, RunningJob
from tests.app import context_tasks as logging_tasks, step_tasks as tasks
from tests.app.worker_tasks import gate
from tests.support.factories import JobFactory, claimed
from tests.support.jobs import sql
from tests.support.sessions import Connect
from tests.support.workers import fresh, make_producer, ran, run_due, run_here, until, working

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
    with working(threads=6):
        until(lambda: all(fresh(job).progress for job in jobs))
        for job in map(fresh, jobs):
            assert (job.status, job.marks) == ("running", 8)
            assert job.progress == Progress(40, 100, "reading")
            assert job.progress.fraction == 0.4
        until(lambda: fresh(steps).current_step == "second")
        assert fresh(steps).marks == 1  # no progress, so no row
        gate("go on").set()
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


# --- The logs of a job are kept with it if its task or its queue asks for that, within their bounds


@pytest.fixture(autouse=True)
def _levels() -> Iterator[None]:
    """The logger of the logging_tasks lets INFO through, as LOGGING of a project would."""
    logging_tasks.logger.setLevel(logging.INFO)
    yield
    logging_tasks.logger.setLevel(logging.NOTSET)
    logging.root.removeHandler(_HANDLER)


def messages(job: Any) -> list[list[str]]:
    return [[line["message"] for line in each["lines"]] for each in fresh(job).logs or []]


def attempts(job: Any) -> list[int]:
    return [entry["attempt"] for entry in fresh(job).logs or []]


def test_lines_are_kept_in_their_order_and_a_process_without_any_has_no_handler() -> None:
    assert ran(logging_tasks.log_never.bind()).logs is None
    assert _HANDLER not in logging.root.handlers
    job = ran(logging_tasks.log.bind(2))
    assert _HANDLER in logging.root.handlers
    (entry,) = job.logs or []
    assert (entry["attempt"], set(entry)) == (1, {"attempt", "lines"})
    assert [set(line) for line in entry["lines"]] == [{"at", "level", "logger", "message"}] * 2
    assert messages(job) == [["line 0", "line 1"]]
    assert (entry["lines"][0]["level"], entry["lines"][0]["logger"]) == ("INFO", "tests.shop")


def test_each_attempt_has_its_own_with_tracebacks_and_from_its_level_on() -> None:
    job = ran(logging_tasks.fail_loudly.bind())
    assert job.status == "failed"
    (first,), (second,) = messages(job)
    assert first.startswith("it is about to fail in attempt 1\nTraceback (most recent call last)")
    assert first.endswith("ValueError: a detail")
    assert second.startswith("it is about to fail in attempt 2")
    retry(job)
    assert attempts(job) == [1, 2]
    run_here()
    assert attempts(job) == [1, 2, 3, 4]


@pytest.mark.parametrize("keep", [1, 2])
def test_the_first_and_the_last_attempts_are_kept(keep: int, settings: Any) -> None:
    settings.PGQUEUE = {"KEEP_ERRORS": keep}
    job = enqueue(logging_tasks.fail_loudly.with_values({"max_attempts": 6}))
    run_here()
    assert attempts(job) == [*range(1, keep + 1), *range(7 - keep, 7)]


@pytest.mark.django_db(transaction=True)
def test_jobs_of_all_kinds_at_the_same_time_do_not_mix() -> None:
    jobs = [enqueue(logging_tasks.log, 3, f"{number} %d") for number in range(8)]
    atomic, on_loop = enqueue(logging_tasks.log_atomic), enqueue(logging_tasks.alog)
    run_due(threads=4)
    for number, job in enumerate(jobs):
        assert messages(job) == [[f"{number} {line}" for line in range(3)]]
    assert messages(atomic) == [["inside the transaction"]]
    assert messages(on_loop) == [["on the loop", "in a thread"]]


ASKS: list[Any] = [True, {"default": "INFO"}, {"*": "INFO"}]
ASKS_NOT: list[Any] = [False, "WARNING", {"*": "INFO", "default": False}, {"other": "INFO"}]


@pytest.mark.parametrize("given", [*ASKS, *ASKS_NOT])
def test_whether_a_queue_asks_for_it_in_the_settings(given: Any, settings: Any) -> None:
    settings.PGQUEUE = {"CAPTURE_LOGS": given}
    job = ran(logging_tasks.log_by_queue.bind())
    assert (attempts(job), job.logs is None) == (([1], False) if given in ASKS else ([], True))
    assert ran(logging_tasks.log_never.bind()).logs is None


def test_lines_that_do_not_fit_are_left_out_in_the_middle(settings: Any) -> None:
    settings.PGQUEUE = {"LOG_LINES": 4}
    job = ran(logging_tasks.log.bind(10))
    assert messages(job) == [["line 0", "line 1", "line 8", "line 9"]]
    (entry,) = job.logs or []
    assert (entry["left_out"], entry["after"]) == (6, 2)


@pytest.mark.parametrize(("message", "count"), [("x" * 100_000 + "%d", 5), ("ä%d", 100), ("a\0\ud800%d", 3)])
def test_the_size_is_bounded_whatever_is_logged(message: str, count: int) -> None:
    log = LogCapture(logging.INFO, 1000, 4000)
    for number in range(count):
        log.add(logging.LogRecord("n" * 500, logging.INFO, "", 0, message, (number,), None))
    kept: Any = log.as_json(1)
    assert len(kept.encode()) < 4000 + 600
    sql("SELECT %s::jsonb", kept)  # the server accepts it


def test_a_bad_record_does_not_harm_the_task(monkeypatch: pytest.MonkeyPatch) -> None:
    printed = io.StringIO()
    monkeypatch.setattr(sys, "stderr", printed)
    log = LogCapture(logging.INFO, 10, 1000)
    running: Any = SimpleNamespace(log=log)
    token = RUNNING.set(running)
    try:
        _HANDLER.handle(logging.LogRecord("shop", logging.INFO, "", 0, "no place", (1,), None))
    finally:
        RUNNING.reset(token)
    assert log.as_json(1) is None
    assert "not all arguments converted" in printed.getvalue()


def test_a_warning_that_nobody_else_prints_is_still_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python prints warnings to standard error if there is no handler at all."""
    printed = io.StringIO()
    monkeypatch.setattr(sys, "stderr", printed)
    monkeypatch.setattr(logging.root, "handlers", [_HANDLER])
    logging.getLogger("lonely").warning("look at me")
    assert printed.getvalue() == "look at me\n"
    quiet = logging.getLogger("lonely.not")
    quiet.addHandler(logging.NullHandler())
    quiet.warning("I have a handler")
    assert printed.getvalue() == "look at me\n"


# --- The values of progress, and track()


@pytest.mark.parametrize(("done", "total", "stored"), [
    (0, 0, (0, 0)),
    (12, 10, (12, 10)),  # an estimate that was too low
    (2.5, 10, (2.5, 10)),
    (2.0, None, (2, None)),
    (Decimal("0.5"), Decimal(3), (0.5, 3)),
    (Fraction(1, 4), None, (0.25, None)),
    (2**53, 2**53, (2**53, 2**53)),
])  # fmt: skip
def test_numbers_that_are_stored(done: Any, total: Any, stored: tuple[Any, Any]) -> None:
    assert progress_of(done, total, "") == (*stored, "")


NO_NUMBERS: dict[str, list[Any]] = {
    r"a number from 0 to 2\*\*53": [
        -1, -0.1, float("nan"), float("inf"), 2**53 + 1, 10**400,
        Decimal("NaN"), Decimal("sNaN"), Decimal(-1),
    ],
    "a number, not": ["5", True, 1j, object()],
}  # fmt: skip


@pytest.mark.parametrize(
    ("words", "value"), [(words, each) for words in NO_NUMBERS for each in NO_NUMBERS[words]]
)
def test_numbers_that_are_refused(words: str, value: Any) -> None:
    error = TypeError if "not" in words else ValueError
    with fake_job() as job:
        for name, numbers in (("done", [value]), ("total", [0, value])):
            with pytest.raises(error, match=rf"progress\({name}=...\) takes {words}"):
                job.set_progress(*numbers)
        with pytest.raises(TypeError, match="takes a number, not None"):
            job.set_progress(None)  # type: ignore[arg-type]


def test_notes_are_cut_and_cleaned() -> None:
    assert progress_of(1, None, "x" * 1000).note == "x" * 199 + "…"
    assert progress_of(1, None, "a\0b\ud800c").note == "a\\x00b\\ud800c"
    with pytest.raises(TypeError, match="takes a str, not None"):
        progress_of(1, None, None)


def test_the_fraction() -> None:
    given = [Progress(1, 4), Progress(0, 0), Progress(12, 10), Progress(3)]
    assert [each.fraction for each in given] == [0.25, 1, 1, None]
    assert str(stored_progress({"done": 2.0, "total": 4.0, "note": ""})) == str(Progress(2, 4))
    assert stored_progress(None) is None


def test_a_call_replaces_the_one_before() -> None:
    with reported_progress() as reported, fake_job() as job:
        job.set_progress(5, 10, "a")
        job.set_progress(3)
        assert job.progress == Progress(3)
    assert reported == [(5, 10, "a"), (3, None, "")]


def test_track_counts_what_is_done_until_the_loop_stops_with_a_note_for_each_item() -> None:
    with reported_progress() as reported, fake_job():
        assert list(track("ab")) == ["a", "b"]
        for item in track(iter("abc"), total=3):
            if item == "b":
                break
        assert list(track(range(5), note=lambda n: f"page {n}", every=2)) == list(range(5))
    assert reported == [
        (0, 2, ""), (1, 2, ""), (2, 2, ""), (2, 2, ""), (0, 3, ""), (1, 3, ""), (0, 5, ""), (0, 5, "page 0"),
        (2, 5, "page 0"), (2, 5, "page 2"), (4, 5, "page 2"), (4, 5, "page 4"), (5, 5, "page 4"),
    ]  # fmt: skip


async def numbers() -> AsyncIterator[int]:
    for number in range(2):
        yield number


def test_track_in_async_code() -> None:
    async def use() -> list[list[int]]:
        return [[n async for n in track(numbers())], [n async for n in track([1, 2], note="x")]]

    with reported_progress() as reported, fake_job():
        assert asyncio.run(use()) == [[0, 1], [1, 2]]
    assert reported[:4] == [(0, None, ""), (1, None, ""), (2, None, ""), (2, None, "")]
    assert reported[4:] == [(0, 2, "x"), (1, 2, "x"), (2, 2, "x"), (2, 2, "x")]
    assert asyncio.run(use()) == [[0, 1], [1, 2]]  # outside of a job
    assert list(track(n for n in range(3))) == [0, 1, 2]
    assert len(reported) == 8


@pytest.mark.parametrize(("arguments", "error", "words"), [
    ({"iterable": 5}, TypeError, "takes an iterable, not 5"),
    ({"every": 0}, ValueError, r"every=...\) takes a whole number from 1, not 0"),
    ({"every": True}, ValueError, "not True"),
    ({"total": -1}, ValueError, r"total=...\) takes a number from 0"),
    ({"note": 5}, TypeError, "takes a str, not 5"),
])  # fmt: skip
def test_what_track_refuses(arguments: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        track(**{"iterable": [], **arguments})
