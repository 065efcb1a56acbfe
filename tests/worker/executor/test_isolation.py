"""Jobs that have crashed run isolated, in a process of their own: what it tells its worker, when the job has
started and when it has not, and what of the job comes along and goes back.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from django.utils import translation

from django_pgqueue import enqueue
from django_pgqueue.models import Job
from django_pgqueue.tasks.progress import Progress
from django_pgqueue.worker import isolation, spawn
from tests.app import context_tasks, worker_tasks as tasks
from tests.app.models import Entry
from tests.support.commands import django_environment
from tests.support.jobs import sql
from tests.support.workers import done, fresh, run_due, until, working

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
    ([], [], 0),
    (["beg"], [], 0),
    (["begun\\n"], [b"begun"], 1),
    (["beg", "un\\n", "[1, ", "2]\\n"], [b"begun", b"[1, 2]"], 1),
    (["begun\\n[1, 2]\\n"], [b"begun", b"[1, 2]"], 1),
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


@pytest.mark.django_db(transaction=True)
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


@pytest.mark.django_db(transaction=True)
@pytest.mark.promise("context-everywhere")
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
