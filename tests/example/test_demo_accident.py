"""The process that the demonstration kills, and the figures that it prints about it."""

from __future__ import annotations

import io
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError
from django.utils import timezone

from django_pgqueue.models import Job, Step, Worker
from example_project.demo import accident, children
from example_project.demo.accident import Accident, Toll
from example_project.demo.children import Child
from example_project.demo.display import Screen
from example_project.demo.interruption import Interruption
from example_project.demo.story import Story
from example_project.search.indexing import Report
from example_project.search.models import Document, Run
from tests.support.workers import until

pytestmark = pytest.mark.django_db


@pytest.fixture
def child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Child]:
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
    with Child("worker") as child:
        yield child
        with suppress(ProcessLookupError):
            os.killpg(process_of(child), signal.SIGKILL)


def process_of(child: Child) -> int:
    return int(until(child.log.read_text).splitlines()[0])


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


def test_a_process_is_killed_in_the_middle_with_the_jobs_that_it_holds(child: Child) -> None:
    victim = register(process_of(child))
    held = [job("running", worker=victim.pk, lease=1).pk for _ in range(2)]
    job("running", worker=victim.pk + 1, lease=2)
    waiting = [job("pending").pk for _ in range(2)]
    accident = Accident(child, Job.objects.all(), 5)
    accident.look()
    assert state_of(victim.pid) in "SR", "nothing is done yet"
    assert accident.toll() is None
    Job.objects.filter(pk__in=waiting)._raw_delete("default")
    accident.look()
    assert accident.has_happened
    assert until(lambda: child.log.read_text().splitlines()[1:]) == [str(-signal.SIGKILL)]
    accident.look()
    assert accident.toll() is None, "it holds its jobs still"
    Job.objects.filter(pk__in=held).update(status="pending", worker=None, lease=None)
    accident.look()
    assert accident.toll() is None, "its jobs are still to run again"
    start = accident._killed_at
    assert start is not None
    for pk, seconds in zip(held, (0.3, 0.9), strict=True):
        Job.objects.filter(pk=pk)._raw_delete("default")
        times = {
            "last_attempted_at": start + timedelta(seconds=seconds),
            "finished_at": start + timedelta(seconds=5),
        }
        job("done", id=pk, shelf=1, **times)
    assert (toll := accident.toll()) is not None
    assert str(toll).startswith("worker killed: its 2 jobs ran again after 0.9 s (back in queue after ")
    assert 0 < toll.back < (timezone.now() - start).total_seconds()


def test_a_process_without_a_job_lives_on(child: Child) -> None:
    pid = process_of(child)
    register(pid)
    job("pending")
    over()
    accident = Accident(child, Job.objects.all(), 2)
    accident.look()
    assert not accident.has_happened
    until(lambda: state_of(pid) in "SR")


def test_only_processes_of_its_own_command_are_killed(child: Child) -> None:
    assert child.started(process_of(child))
    with subprocess.Popen(["sleep", "600"]) as stranger:
        try:
            for pid in (stranger.pid, 2**22 + 1):  # a process of somebody else, and an id that does not exist
                assert not child.started(pid)
                job("running", worker=register(pid).pk, lease=1)
            elsewhere = register(process_of(child))
            Worker.objects.filter(pk=elsewhere.pk).update(host="elsewhere")
            job("running", worker=elsewhere.pk, lease=2)
            over(2)
            accident = Accident(child, Job.objects.all(), 5)
            accident.look()
            assert not accident.has_happened
            assert stranger.poll() is None
        finally:
            stranger.kill()


@pytest.mark.parametrize(
    ("done", "first_line", "second_line", "is_time"),
    [(2, 5, 5, False), (4, 1, 8, True), (4, 5, 3, False), (12, 4, 0, True), (4, 0, 0, False)],
)
def test_the_moment_is_in_the_middle_where_few_of_the_same_priority_wait(
    monkeypatch: pytest.MonkeyPatch, child: Child, done: int, first_line: int, second_line: int, is_time: bool
) -> None:
    monkeypatch.setattr(accident, "SHORT_LINE", 3)
    over(done)
    for priority, count in ((10, first_line), (0, second_line)):
        for _ in range(count):
            job("pending", priority=priority)
    total = done + first_line + second_line
    assert Accident(child, Job.objects.all(), total)._is_time() is is_time


def test_one_job_is_told_of_as_one() -> None:
    toll = "worker killed: its job ran again after 1.0 s (back in queue after 42.0 ms)"
    assert str(Toll(jobs=1, back=0.042, again=1.04)) == toll


def test_a_process_is_killed_in_the_middle_of_a_document(child: Child) -> None:
    victim = register(process_of(child))
    row = Document.objects.create(path="/corpus/book.txt", size=1, modified=1)
    held = job("running", worker=victim.pk, lease=1, args=[row.pk]).pk
    moments = [timezone.now() + timedelta(seconds=number) for number in range(10)]
    names = ["read", "extract", *(f"vectors {number}" for number in range(1, 7)), "publish"]

    def record(*numbers: int) -> None:
        for number in numbers:
            result = list(range(7)) if names[number] == "extract" else None
            Step.objects.create(job_id=held, name=names[number], finished_at=moments[number], result=result)

    interruption = Interruption(child, Job.objects.all())

    def happened() -> bool:
        return interruption.has_happened

    record(0, 1, 2, 3)
    interruption.look()
    assert not happened(), "it has just begun"
    Job.objects.filter(pk=held).update(worker=victim.pk + 1)
    record(4)
    interruption.look()
    assert not happened(), "another process has the job"
    Job.objects.filter(pk=held).update(worker=victim.pk)
    interruption.look()
    assert happened()
    assert until(lambda: child.log.read_text().splitlines()[1:]) == [str(-signal.SIGKILL)]
    assert interruption.resumption() is None, "the job is not over"
    Job.objects.filter(pk=held)._raw_delete("default")
    start = interruption._killed_at
    assert start is not None
    times = {"last_attempted_at": start + timedelta(seconds=1), "finished_at": start + timedelta(seconds=2)}
    moments[4] += timedelta(seconds=9)
    steps = [{"name": name, "finished_at": moments[at].isoformat()} for at, name in enumerate(names)]
    job("done", id=held, shelf=1, args=[row.pk], steps=steps, **times)
    assert (resumption := interruption.resumption()) is not None
    assert resumption.repeated == ["vectors 3"]
    assert str(resumption) == (
        "worker killed after 5 of 9 steps of book.txt:\nits job continued with step 6, vectors 4, after 1.0 s"
    )


def test_a_document_that_is_nearly_done_is_left_alone(child: Child) -> None:
    held = job("running", worker=register(process_of(child)).pk, lease=1).pk
    Step.objects.create(job_id=held, name="extract", result=list(range(6)))
    for number in range(1, 4):
        Step.objects.create(job_id=held, name=f"vectors {number}")
    interruption = Interruption(child, Job.objects.all())
    interruption.look()
    assert not interruption.has_happened
    until(lambda: state_of(process_of(child)) in "SR")


def check(**summary: Any) -> str:
    """What the demonstration says of a run with this summary."""
    wrote = {"files": 3, "indexed": 2, "failed": {"gone": 1}, "troubles": [], **summary} if summary else None
    run = Run.objects.create(batch_id=Run.objects.count(), files=3, summary=wrote)
    last = job("failed" if wrote is None else "done", shelf=1, finished_at=timezone.now())
    screen = io.StringIO()
    Story(Screen(screen), 3).check(Report(run=run, summary=last, job_ids=[1, 2, 3]))
    return screen.getvalue()


def test_a_whole_index_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Job, "join", lambda job, timeout: job)  # it waits in no transaction, such as this one
    assert "3 files: 2 indexed, 1 failed; none missing, none twice" in check(troubles=[])
    with pytest.raises(CommandError, match="1 jobs are missing"):
        check(troubles=["1 jobs are missing"])
    with pytest.raises(CommandError, match="The job that sums up the run is failed"):
        check()
