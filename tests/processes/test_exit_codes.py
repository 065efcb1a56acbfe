"""What a shell learns from commands that Ctrl-C or the reader of their output has cut short."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable

import pytest

from django_pgqueue import enqueue
from tests.app import worker_tasks as tasks
from tests.app.models import Entry
from tests.support.commands import ROOT, SLOW, Command, django_environment
from tests.support.workers import fresh, until

pytestmark = pytest.mark.django_db(transaction=True)


def pgqueue(*arguments: str, stdout: int = subprocess.PIPE) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "django", "pgqueue", *arguments],
        cwd=ROOT, env=django_environment(), stdin=subprocess.DEVNULL, stdout=stdout, stderr=subprocess.PIPE,
        text=True,
        # A shell lets what it starts in the background ignore Ctrl-C.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip


def test_ctrl_c_gives_the_job_back_that_runs_here() -> None:
    job = enqueue(tasks.wait_for_entry, "never")
    with pgqueue("run-here", str(job.pk)) as command:
        until(Entry.objects.exists, seconds=SLOW)
        command.send_signal(signal.SIGINT)
        _out, said = command.communicate(timeout=SLOW)
    assert command.returncode == 130, said
    assert "attempt 1: it waits again (it was interrupted)." in said
    assert fresh(job).status == "pending"


def test_the_reader_goes_away() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with pgqueue("status", stdout=writing) as command:
        os.close(writing)
        _out, said = command.communicate(timeout=SLOW)
    assert (command.returncode, said) == (141, "")


def test_ctrl_c_cuts_a_burst_short(start: Callable[..., Command]) -> None:
    enqueue(tasks.wait_for_entry, "go")
    command = start("--burst")
    until(Entry.objects.exists, seconds=SLOW)
    command.send(signal.SIGINT)
    Entry.objects.create(key="go")
    assert command.wait() == 130, command.log
