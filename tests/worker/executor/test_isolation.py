"""The process of an isolated job as its worker sees it, when the job has started and when it has not."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from typing import Any

import pytest
from django.db import connection

from django_pgqueue import enqueue
from django_pgqueue.tasks.progress import Progress
from django_pgqueue.worker import isolation
from tests.app import worker_tasks as tasks
from tests.support.workers import fresh, until, working

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
    reading, writing = socket.socketpair()
    with (
        reading,
        subprocess.Popen(
            [sys.executable, "-c", SPEAKER, str(writing.fileno()), *words], pass_fds=[writing.fileno()]
        ) as process,
    ):
        writing.close()
        heard = isolation._listen(reading, process, lambda: begun.append(1), lambda *each: told.append(each))
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
        assert isolation._listen(reading, process, lambda: pytest.fail("begun"), lambda *told: None) == []
    assert process.returncode == -signal.SIGKILL
    (said,) = caplog.messages
    assert said.endswith("which has not loaded the settings and apps within 0.1 s")


@pytest.mark.parametrize(
    ("words", "heard", "begun"),
    [
        ([], [], 0),
        (["beg"], [], 0),
        (["begun\\n"], [b"begun"], 1),
        (["beg", "un\\n", "[1, ", "2]\\n"], [b"begun", b"[1, 2]"], 1),
        (["begun\\n[1, 2]\\n"], [b"begun", b"[1, 2]"], 1),
        (["begun\\n", "[1, "], [b"begun"], 1),
        (["begun\\ntold [null", ', [3, 4, "x"]]\\n[1, ', "2]\\n"], [b"begun", b"[1, 2]"], 1),
        (["begun\\ntold \\xff\\ntold [5]\\ntold 5\\n", "[1, 2]\\n"], [b"begun", b"[1, 2]"], 1),
    ],
)
def test_a_job_has_begun_when_its_process_says_so(words: list[str], heard: list[bytes], begun: int) -> None:
    assert listen(*words) == (heard, begun)


@pytest.mark.parametrize(
    "line", [b"", b"5", b"[1, 2]", b"[[], 1]", b"\xff", b"[[1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1, 2, 3, 4], 1]"]
)
def test_what_a_task_writes_into_the_pipe_is_no_outcome(line: bytes) -> None:
    assert isolation._ended(line) is None


@pytest.mark.django_db(transaction=True)
def test_a_process_that_cannot_start_costs_the_job_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> dict[str, Any]:
        return {**os.environ, "DJANGO_SETTINGS_MODULE": "no.such.settings"}

    monkeypatch.setattr(isolation, "child_environment", broken)
    job = enqueue(tasks.noop)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE pgqueue_job_live SET crash_count = 1 WHERE id = %s", [job.pk])
    with working() as worker:
        until(lambda: fresh(job).waiting_reason)
        assert worker.producer.jobs._started_jobs.begun() == []
        after = enqueue(tasks.noop)
        until(lambda: fresh(after).status == "done")
    back = fresh(job)
    assert (back.status, back.attempts, back.crash_count) == ("pending", 0, 1)
    assert "could not start" in back.waiting_reason
