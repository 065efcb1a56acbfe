"""The processes that the demonstration starts, serves with, and kills; and its secrets."""

from __future__ import annotations

import os
import re
import select
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError
from django.utils import timezone

from django_pgqueue.models import Job, Worker
from example_project.demo import children
from example_project.demo.accident import Accident
from example_project.demo.children import Child
from example_project.demo.serving import free_address
from example_project.project.secrets import kept_secret
from tests.support.workers import until


def test_a_wanted_port_is_taken_or_refused_and_none_means_any() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(CommandError, match=r"cannot be used\. Choose another port with --port"):
            free_address(port)
    assert free_address(port) == f"127.0.0.1:{port}"
    assert re.fullmatch(r"127\.0\.0\.1:\d+", free_address(None))


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in for manage.py, to be written by the test."""
    monkeypatch.setattr(children, "MANAGE", tmp_path / "script.py")
    monkeypatch.setattr(children, "VAR", tmp_path)
    monkeypatch.setattr(children, "database_url", lambda: "postgresql:///given")
    return tmp_path / "script.py"


def wait_for(child: Child, word: str) -> None:
    """Return when the child has printed the word."""
    found = threading.Event()
    while word not in child.log.read_text():
        child.check()
        found.wait(0.01)


def test_a_child_is_asked_to_end(script: Path) -> None:
    script.write_text(
        "import os, signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(print('asked')))\n"
        "print(os.environ['DATABASE_URL'], os.environ['DEBUG'], sys.argv[1:], 'up')\n"
        "while True: time.sleep(0.01)\n"  # a signal that comes just before signal.pause() would not end it
    )
    with Child("child", "a", "b") as child:
        wait_for(child, "up")
    assert child.log.read_text() == "postgresql:///given False ['a', 'b'] up\nasked\n"


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
    wait_for(child, "up")
    pidfd = os.pidfd_open(int(child.log.read_text().split()[1]))
    child.stop()
    with pytest.raises(CommandError, match=f"exit code -{signal.SIGKILL:d}"):
        child.check()

    assert select.select([pidfd], [], [], 10)[0], "the grandchild has ended"
    os.close(pidfd)


def test_a_child_that_ended_is_an_error_with_its_last_words(script: Path) -> None:
    script.write_text("print('first words'); raise SystemExit('no database')")
    with Child("worker") as child:
        child._process.wait(30)
        with pytest.raises(CommandError, match=r"The worker ended with exit code 1(?s:.*)no database"):
            child.check()


def test_a_secret_is_made_once_and_is_its_owners_only(tmp_path: Path) -> None:
    path = tmp_path / "new" / "secret"
    assert kept_secret(path, lambda: "first") == "first"
    assert kept_secret(path, lambda: "second") == "first"
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(path.parent.iterdir()) == [path]


def test_of_two_that_make_a_secret_at_once_both_get_the_same(tmp_path: Path) -> None:
    path = tmp_path / "secret"

    def make_late() -> str:
        path.write_text("by the other")
        return "mine"

    assert kept_secret(path, make_late) == "by the other"
    assert list(tmp_path.iterdir()) == [path]


@pytest.fixture
def worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Child]:
    """A replacement for the worker command, which starts a process as the command does and prints its id."""
    script = tmp_path / "script.py"
    script.write_text(
        "import subprocess, sys\n"
        "sleeper = [sys.executable, '-c', 'import time; time.sleep(600)']\n"
        "process = subprocess.Popen(sleeper, process_group=0)\n"
        "print(process.pid)\n"
        "print(process.wait())\n"
    )
    monkeypatch.setattr(children, "MANAGE", script)
    monkeypatch.setattr(children, "VAR", tmp_path)
    monkeypatch.setattr(children, "database_url", lambda: "postgresql:///given")
    with Child("worker") as worker:
        yield worker
        with suppress(ProcessLookupError):
            os.killpg(process_of(worker), signal.SIGKILL)


def process_of(worker: Child) -> int:
    return int(until(worker.log.read_text).splitlines()[0])


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def register(pid: int) -> Worker:
    return Worker.objects.create(
        id=pid, host=socket.gethostname(), pid=pid, supervisor=1, queues=[], slots=1, version=""
    )


def job(status: str, **columns: Any) -> Job:
    return Job.objects.create(**{"task_path": "t", "status": status, **columns})


def over(count: int = 1) -> None:
    for _ in range(count):
        job("done", shelf=1, finished_at=timezone.now())


@pytest.mark.django_db
def test_a_process_without_a_job_lives_on(worker: Child) -> None:
    pid = process_of(worker)
    register(pid)
    job("pending")
    over()
    accident = Accident(worker, Job.objects.all(), 2)
    accident.look()
    assert not accident.has_happened
    until(lambda: state_of(pid) in "SR")


@pytest.mark.django_db
def test_only_processes_of_its_own_command_are_killed(worker: Child) -> None:
    assert worker.started(process_of(worker))
    with subprocess.Popen(["sleep", "600"]) as stranger:
        try:
            for pid in (stranger.pid, 2**22 + 1):  # a process of somebody else, and an id that does not exist
                assert not worker.started(pid)
                job("running", worker=register(pid).pk, lease=1)
            elsewhere = register(process_of(worker))
            Worker.objects.filter(pk=elsewhere.pk).update(host="elsewhere")
            job("running", worker=elsewhere.pk, lease=2)
            over(2)
            accident = Accident(worker, Job.objects.all(), 5)
            accident.look()
            assert not accident.has_happened
            assert stranger.poll() is None
        finally:
            stranger.kill()
