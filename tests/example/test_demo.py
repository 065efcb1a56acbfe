"""The demonstration: what it prints, the processes that it starts and kills, and its secrets."""

from __future__ import annotations

import io
import os
import re
import select
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError
from django.utils import timezone

from django_pgqueue.models import Job, Worker
from example_project.demo import children, corpus, story
from example_project.demo.accident import Accident
from example_project.demo.children import Child
from example_project.demo.closing import wrap
from example_project.demo.display import Live, Screen, duration, printable
from example_project.demo.serving import free_address
from example_project.demo.story import Story
from example_project.demo.summary import percentile
from example_project.project.secrets import kept_secret
from example_project.search.indexing import Report
from example_project.search.models import Document, Run
from tests.support.waiting import until

# --- What it prints


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_on_a_terminal_progress_is_drawn_over_itself_below_what_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    terminal = Terminal()
    live = Live(Screen(terminal), 1000)
    live.update(500, 0)
    first = terminal.getvalue()
    live.say("news")
    live.update(0, 2)
    news, rest = terminal.getvalue()[len(first) :].split("news\n")
    assert "500 of 1,000" in first
    assert news == "\x1b[3A\r\x1b[2K  ", "over the first of the three lines"
    assert "100%" in rest
    assert "2 failed" in rest
    live.update(0, 2)
    assert terminal.getvalue().removesuffix(rest[-1]).count("\x1b[3A") == 2
    assert Screen(terminal).mark("hit") == "\x1b[30;43mhit\x1b[0m"
    monkeypatch.setenv("NO_COLOR", "1")
    assert Screen(terminal).mark("hit") == "[hit]"


def test_texts_of_files_and_figures() -> None:
    assert printable("a\x1b[2Jb\r\n\x9bc\u202e") == "a [2Jb   c "
    assert [duration(each) for each in (0.0000421, 0.0042, 42.04)] == ["42 µs", "4.2 ms", "42.0 s"]
    numbers = [float(number) for number in range(1, 101)]
    assert [percentile(numbers, percent) for percent in (0, 50, 95, 100)] == [1, 51, 96, 100]
    pieces = [("one  two\n\nthree ", False), ("match", True), ("ing a-word-too-long", False)]
    lines = wrap(pieces, 10)
    assert ["".join(word for word, _ in line).rstrip() for line in lines] == [
        "one two", "three", "matching", "a-word-too-long",
    ]  # fmt: skip


@pytest.mark.django_db
def test_only_a_whole_index_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Job, "join", lambda job, timeout: job)  # it waits in no transaction, such as this one

    def check(**summary: Any) -> str:
        wrote = {"files": 3, "indexed": 2, "failed": {"gone": 1}, **summary} if summary else None
        run = Run.objects.create(batch_id=Run.objects.count(), files=3, summary=wrote)
        status = "done" if summary else "failed"
        last = Job.objects.create(task_path="t", status=status, shelf=1, finished_at=timezone.now())
        screen = io.StringIO()
        Story(Screen(screen), 3).check(Report(run=run, summary=last, job_ids=[1, 2, 3]))
        return screen.getvalue()

    assert "3 files: 2 indexed, 1 failed; none missing, none twice" in check(troubles=[])
    with pytest.raises(CommandError, match="1 jobs are missing"):
        check(troubles=["1 jobs are missing"])
    with pytest.raises(CommandError, match="The job that sums up the run is failed"):
        check()


@pytest.mark.django_db
def test_a_second_run_starts_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(story, "call_command", lambda *_, **__: None)
    for path in (f"{corpus.roots()[0]}/a.py", "/elsewhere"):
        Document.objects.create(path=path, size=0, modified=0)
    screen = io.StringIO()
    Story(Screen(screen), 3).prepare()
    assert "1 documents of the last run were removed" in screen.getvalue()
    assert Document.objects.get().path == "/elsewhere"


# --- Processes and secrets


def test_a_wanted_port_is_taken_or_refused_and_none_means_any() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(CommandError, match=r"cannot be used\. Choose another port with --port"):
            free_address(port)
    assert free_address(port) == f"127.0.0.1:{port}"
    assert re.fullmatch(r"127\.0\.0\.1:\d+", free_address(None))


def test_a_secret_is_made_once_and_is_its_owners_only(tmp_path: Path) -> None:
    path = tmp_path / "new" / "secret"

    def make_late() -> str:
        path.write_text("by another process")
        return "mine"

    assert kept_secret(path, make_late) == kept_secret(path, lambda: "second") == "by another process"
    path.unlink()
    assert kept_secret(path, lambda: "first") == "first"
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(path.parent.iterdir()) == [path]


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in for manage.py, to be written by the test."""
    monkeypatch.setattr(children, "MANAGE", tmp_path / "script.py")
    monkeypatch.setattr(children, "VAR", tmp_path)
    monkeypatch.setattr(children, "database_url", lambda: "postgresql:///given")
    return tmp_path / "script.py"


def test_a_child_that_will_not_end_is_killed_with_its_own_children(
    script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(children, "GRACE", 0.1)
    script.write_text(
        "import os, signal\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "if pid := os.fork(): print('pid', pid, 'up')\n"
        "while True: signal.pause()\n"
    )
    child = Child("child")
    until(lambda: "up" in child.log.read_text())
    pidfd = os.pidfd_open(int(child.log.read_text().split()[1]))
    child.stop()
    with pytest.raises(CommandError, match=f"exit code -{signal.SIGKILL:d}(?s:.*)up"):
        child.check()
    assert select.select([pidfd], [], [], 10)[0], "the grandchild has ended"
    os.close(pidfd)


@pytest.fixture
def worker(script: Path) -> Iterator[Child]:
    """A replacement for the worker command, which starts a process as the command does and prints its id."""
    script.write_text(
        "import subprocess, sys\n"
        "sleeper = [sys.executable, '-c', 'import time; time.sleep(600)']\n"
        "process = subprocess.Popen(sleeper, process_group=0)\n"
        "print(process.pid)\n"
        "print(process.wait())\n"
    )
    with Child("worker") as worker:
        yield worker
        with suppress(ProcessLookupError):
            os.killpg(process_of(worker), signal.SIGKILL)


def process_of(worker: Child) -> int:
    return int(until(worker.log.read_text).splitlines()[0])


@pytest.mark.django_db
def test_only_processes_of_its_own_command_are_killed(worker: Child) -> None:
    def register(pid: int, host: str = "") -> Worker:
        host = host or socket.gethostname()
        return Worker.objects.create(id=pid, host=host, pid=pid, supervisor=1, queues=[], slots=1, version="")

    def job(status: str, **columns: Any) -> Job:
        return Job.objects.create(**{"task_path": "t", "status": status, **columns})

    assert worker.started(process_of(worker))
    with subprocess.Popen(["sleep", "600"]) as stranger:
        try:
            for pid in (stranger.pid, 2**22 + 1):  # a process of somebody else, and an id that does not exist
                assert not worker.started(pid)
                job("running", worker=register(pid).pk, lease=1)
            job("running", worker=register(process_of(worker), "elsewhere").pk, lease=2)
            for _ in range(2):
                job("done", shelf=1, finished_at=timezone.now())
            accident = Accident(worker, Job.objects.all(), 5)
            accident.look()
            assert not accident.has_happened
            assert stranger.poll() is None
        finally:
            stranger.kill()
