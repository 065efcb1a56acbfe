"""Tasks that do what they should not: each ends in the right state, and other jobs are not affected. Jobs
that have crashed before run isolated, in a process of their own.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterable
from io import StringIO
from types import SimpleNamespace
from typing import Any

import pytest
from django.utils import translation

from django_pgqueue import BoundTask, enqueue, enqueue_many
from django_pgqueue.models import Job
from django_pgqueue.tasks.progress import Progress
from django_pgqueue.worker import isolation, spawn
from tests.app import context_tasks, hostile_tasks as hostile, worker_tasks as tasks
from tests.app.models import Entry
from tests.support.commands import django_environment
from tests.support.jobs import sql
from tests.support.workers import done, fresh, run_due, until, working

pytestmark = pytest.mark.django_db(transaction=True)


def among_others(calls: Iterable[BoundTask]) -> list[Any]:
    """Run calls of tasks on one thread, with other jobs before, between and after them that must succeed.
    Return their jobs as they ended; None for one that is gone.
    """
    others, made = [tasks.add.bind(0), tasks.aid_everywhere.bind()], []
    batch = list(others)
    for number, call in enumerate(calls):
        made.append(len(batch))
        batch += [call, tasks.add.bind(number), tasks.abackend.bind()]
    ids = enqueue_many(batch).ids
    run_due(threads=1)
    found = Job.objects.in_bulk(ids)
    for place in set(range(len(ids))) - {*made}:
        job = found[ids[place]]
        assert (job.status, job.attempts) == ("done", 1), job.errors
    return [found.get(ids[place]) for place in made]


@pytest.fixture
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each failure is logged with its exception: printed, but not where pytest would repeat it."""
    handler = logging.StreamHandler(StringIO())
    monkeypatch.setattr(logging.getLogger("django_pgqueue.job"), "callHandlers", handler.handle)


MESSAGES = {
    "nul": "a\\x00b", "surrogate": "a\\ud800b", "group": "many (2 sub-exceptions)", "unpicklable": "",
    "SystemExit": "3", "unprintable": "<str() of this Unprintable raised Base>",
}  # fmt: skip


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("task", [
    hostile.raise_, hostile.araise, hostile.raise_in_child, hostile.raise_in_thread, hostile.raise_in_atomic,
])  # fmt: skip
def test_whatever_a_task_raises_is_a_failed_attempt(task: Any, settings: Any) -> None:
    settings.PGQUEUE = {"MAX_ERROR_BYTES": 2000}
    attempts = {kind: 2 if kind == "the same again" else 1 for kind in hostile.ERRORS}
    jobs = among_others(task.using(max_attempts=most).bind(kind) for kind, most in attempts.items())
    for (kind, most), job in zip(attempts.items(), jobs, strict=True):
        assert (job.status, job.attempts, len(job.errors)) == ("failed", most, most), (kind, job.errors)
        for error in job.errors:
            assert len((error["message"] + error["traceback"]).encode()) < 2100, kind
            # Python turns exceptions with a meaning for coroutines into a RuntimeError.
            is_own = error["class"].startswith(("builtins", "tests", "asyncio"))
            assert is_own or kind.startswith("Stop"), kind
            assert error["message"] == MESSAGES.get(kind, error["message"])
            if kind == "nul" and task is not hostile.raise_in_thread:
                assert "django_pgqueue/worker" not in error["traceback"]
            assert kind != "lengthy" or "bytes left out" in error["message"]
    assert not Entry.objects.exists()


@pytest.mark.promise("bad-result-fails")
def test_whatever_a_task_returns_that_cannot_be_stored_fails_it_at_once() -> None:
    calls = [task.bind(kind) for kind in hostile.RESULTS for task in (hostile.give, hostile.agive)]
    for call, job in zip(calls, among_others(calls), strict=True):
        assert (job.status, job.attempts, job.result) == ("failed", 1, None), (call.args, job.errors)
        if call.args != ("hostile dict",):
            assert job.errors[0]["class"] == "django_pgqueue.exceptions.InvalidJSON", call.args
            assert "result" in job.errors[0]["message"]
    assert sorted(tasks.SEEN) == sorted([*hostile.RESULTS, *hostile.RESULTS])


ENDS = [
    # A job cancels itself, for whatever reason.
    (hostile.cancel_oddly.bind("error"), "cancelled", 0, "why"),
    (hostile.cancel_oddly.bind("unprintable"), "cancelled", 0, "<str() of this CancelJob raised Base>"),
    (hostile.cancel_oddly.bind("none"), "cancelled", 0, "None"),
    (hostile.cancel_oddly.bind("bytes"), "cancelled", 0, "b'x'"),
    # The exception breaks the worker's own questions.
    (hostile.cancel_oddly.bind("misleading"), "failed", 1, "division by zero"),
    # A job asks itself to stop.
    (hostile.cancel_itself.bind("look"), "cancelled", 0, "heard it"),
    (hostile.cancel_itself.bind("return"), "done", 0, ""),
    (hostile.cancel_itself.bind("raise"), "cancelled", 1, "after it"),
    (hostile.acancel_itself.bind("await"), "cancelled", 0, "asked to stop"),
    (hostile.cancel_itself_in_atomic.bind("return"), "done", 0, ""),
    # The request is rolled back with the rest.
    (hostile.cancel_itself_in_atomic.bind("raise"), "failed", 3, "after it"),
    # A job deletes its own row.
    (hostile.delete_own_row.bind("return"), None, 0, ""),
    (hostile.delete_own_row.bind("raise"), None, 0, ""),
    (hostile.adelete_own_row.bind("return"), None, 0, ""),
    (hostile.adelete_own_row.bind("raise"), None, 0, ""),
    # The deletion is rolled back with the rest, for a finish that finds nothing is refused.
    (hostile.delete_own_row_in_atomic.bind("return"), "failed", 1, "there is no live job"),
    (hostile.delete_own_row_in_atomic.bind("raise"), "failed", 1, "after it"),
    # A deletion that is never committed never was.
    (hostile.delete_own_row_and_leave_it_open.bind(), "retry", 1, "has left a transaction open"),
]


def test_a_job_that_cancels_itself_or_deletes_its_own_row(caplog: pytest.LogCaptureFixture) -> None:
    jobs = among_others(call for call, *_ in ENDS)
    for (call, status, errors, words), job in zip(ENDS, jobs, strict=True):
        if job is None:
            assert status is None, call
            continue
        assert (job.status, len(job.errors)) == (status, errors), (call, job.errors)
        said = job.errors[-1]["message"] if errors else job.waiting_reason
        assert words in said if words else said == "", call
    assert [entry.key for entry in Entry.objects.all()] == ["return"], "that of the atomic task that is done"
    assert caplog.text.count("was refused") >= 4


def test_jobs_that_enqueue_themselves_for_ever_starve_nobody() -> None:
    breeders: list[Any] = [hostile.breed, hostile.abreed, hostile.breed_two]
    for task in breeders:
        enqueue(task, task.func.__name__)
    with working(threads=2) as worker:
        tasks.runs(*(task.func.__name__ for task in breeders))
        others = enqueue_many(tasks.add.bind(number) for number in range(20)).ids
        others += enqueue_many(tasks.aid_everywhere.bind() for _ in range(5)).ids
        until(lambda: Job.objects.filter(pk__in=others, status="done").count() == 25)
        worker.stop()
        assert Job.objects.filter(pk__in=others, attempts=1).count() == 25
    live = Job.objects.filter(task_path__in=[task.module_path for task in breeders]).exclude(status="done")
    assert set(live.values_list("task_path", "status", "attempts")) == {
        (task.module_path, "pending", 0) for task in breeders
    }
    tasks.release(*(task.func.__name__ for task in breeders))
    run_due()
    assert not live.exists()


def test_language_time_zone_and_context_variables_do_not_leak() -> None:
    activate, aactivate = hostile.activate.bind(), hostile.aactivate.bind()
    look, alook = hostile.context.bind(), hostile.acontext.bind()
    jobs = among_others([look, alook, activate, look, alook, aactivate, look, alook])
    found = [job.result for job in jobs if job.result is not None]
    clean = ["en-us", "UTC", 28]
    assert found == [clean, clean + clean] * 3


def test_a_thread_that_outlives_its_job_harms_nobody() -> None:
    (job,) = among_others([hostile.leave_thread.bind("t")])
    assert job.status == "done"
    tasks.runs("t")
    tasks.release("t")
    assert tasks.gate("t ended").wait(tasks.DEADLINE)
    assert tasks.SEEN == [[False, False, True]]
    assert Entry.objects.count() == 1


# --- Jobs that have crashed run isolated, in a process of their own


# Each word is sent after the previous one was read, so that it arrives separately.
SPEAKER = """
import array, fcntl, os, sys, termios, time
pipe, *words = sys.argv[1:]
unread = array.array("i", [0])
for word in words:
    os.write(int(pipe), word.encode().decode("unicode_escape").encode())
    while not fcntl.ioctl(int(pipe), termios.FIONREAD, unread) and unread[0]:
        time.sleep(0.001)
"""


def listen(*words: str) -> tuple[list[bytes], int]:
    """Return what is received from a process that sends these words, and how often the job has started."""
    begun: list[int] = []
    told: list[Any] = []
    running: Any = SimpleNamespace(progress=SimpleNamespace(hear=lambda *each: told.append(each)))
    reading, writing = socket.socketpair()
    with (
        reading,
        subprocess.Popen(
            [sys.executable, "-c", SPEAKER, str(writing.fileno()), *words], pass_fds=[writing.fileno()]
        ) as process,
    ):
        writing.close()
        heard = isolation._listen(reading, process, running, lambda: begun.append(1))
    assert [progress for _, progress in told] == [Progress(3, 4, "x")] * len(told)
    return heard, len(begun)


def test_a_process_that_hangs_while_it_starts_is_killed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The timeout of its job does not count yet."""
    monkeypatch.setattr(isolation, "START_WITHIN", 0.1)
    reading, writing = socket.socketpair()
    command = ["sleep", "1000"]
    with reading, subprocess.Popen(command, pass_fds=[writing.fileno()], process_group=0) as process:
        writing.close()
        running: Any = None  # it reports nothing
        assert isolation._listen(reading, process, running, lambda: pytest.fail("begun")) == []
    assert process.returncode == -signal.SIGKILL
    (said,) = caplog.messages
    assert said.endswith("which has not loaded the settings and apps within 0.1 s")


@pytest.mark.parametrize(("words", "heard", "begun"), [
    (["beg"], [], 0),
    (["begun\\n"], [b"begun"], 1),
    (["beg", "un\\n", "[1, ", "2]\\n"], [b"begun", b"[1, 2]"], 1),
    (["begun\\n", "[1, "], [b"begun"], 1),
    (["begun\\nreport [null", ', [3, 4, "x"]]\\n[1, ', "2]\\n"], [b"begun", b"[1, 2]"], 1),
    (["begun\\nreport \\xff\\nreport [5]\\nreport 5\\n", "[1, 2]\\n"], [b"begun", b"[1, 2]"], 1),
])  # fmt: skip
def test_a_job_has_begun_when_its_process_says_so(words: list[str], heard: list[bytes], begun: int) -> None:
    assert listen(*words) == (heard, begun)


@pytest.mark.parametrize(
    "line", [b"", b"5", b"[1, 2]", b"[[], 1]", b"\xff", b"[[1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1, 2, 3, 4], 1]"]
)
def test_what_a_task_writes_into_the_pipe_is_no_outcome(line: bytes) -> None:
    assert isolation._ended(line) is None


def have_crashed() -> None:
    """All jobs have crashed once."""
    Job.objects.update(crash_count=1)


@pytest.mark.usefixtures("forks_here")
def test_a_process_that_cannot_start_costs_the_job_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> dict[str, Any]:
        return {**os.environ, "DJANGO_SETTINGS_MODULE": "no.such.settings"}

    monkeypatch.setattr(spawn, "child_environment", broken)
    job = enqueue(tasks.noop)
    have_crashed()
    with working() as worker:
        until(lambda: fresh(job).waiting_reason)
        assert worker.producer.jobs._started_jobs.begun() == []
        done(enqueue(tasks.noop))
    back = fresh(job)
    assert (back.status, back.attempts, back.crash_count) == ("pending", 0, 1)
    assert "could not start" in back.waiting_reason


@pytest.mark.promise("context-everywhere")
@pytest.mark.usefixtures("forks_here")
def test_an_isolated_job_has_its_context_and_hooks_and_reports_its_end_and_its_logs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in django_environment(AROUND_ATTEMPT=["tests.app.hooks.outer"]).items():
        monkeypatch.setenv(name, value)
    with translation.override("de"):
        job = enqueue(context_tasks.tell_and_snooze.using(metadata={"tenant": "acme"}))
    wrong = sql("SELECT pgqueue_enqueue('tests.app.worker_tasks.effect', '[\"a\"]', '{\"key\": \"a\"}')")
    have_crashed()
    run_due(threads=2)
    assert (fresh(job).status, fresh(job).errors) == ("pending", [])
    ((line,),) = [attempt["lines"] for attempt in fresh(job).logs or []]
    assert line["message"] == "de, acme"
    # Arguments that do not fit fail a job at once, as in any other process.
    assert (fresh(wrong).status, fresh(wrong).attempts, Entry.objects.exists()) == ("failed", 1, False)
    message = "tests.app.worker_tasks.effect(): multiple values for argument 'key'"
    assert fresh(wrong).errors[0]["traceback"] == f"TypeError: {message}\n"
