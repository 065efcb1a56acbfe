"""The demonstration: what it prints, the processes that it starts and kills, and its secrets."""

from __future__ import annotations

import io
import os
import re
import select
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from io import StringIO
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from django_pgqueue.maintenance.rounds import Rounds
from django_pgqueue.models import (
    FailureGroup,
    Job,
    JobBatch,
    Limit,
    Pause,
    Queue,
    Schedule,
    StatRollup,
    Worker,
)
from django_pgqueue.monitoring.workers import Vital, vital, with_vitals
from django_pgqueue.postgres.session import connect
from example_project.demo import children, corpus, story
from example_project.demo.accident import Accident
from example_project.demo.children import Child, only_one
from example_project.demo.closing import wrap
from example_project.demo.display import Live, Screen, duration, printable
from example_project.demo.management.commands.seed_demo import Command
from example_project.demo.serving import free_address
from example_project.demo.story import Story
from example_project.demo.summary import percentile
from example_project.project.secrets import kept_secret
from example_project.search.indexing import Report
from example_project.search.models import Document, Run
from tests.support.factories import JobFactory, WorkerFactory
from tests.support.jobs import fetch
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


# --- The whole demonstration as a command, with a real worker and a real server; and seed_demo


MANAGE = Path(__file__).resolve().parents[2] / "example_project" / "manage.py"
SECONDS = 180


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[dict[str, str]]:
    """The environment with a separate database and folder."""
    given = os.environ["DATABASE_URL"]
    name = f"demo_{os.getpid()}"
    with psycopg.connect(given, autocommit=True) as server:
        server.execute(f"CREATE DATABASE {name}")
        yield {
            **{key: value for key, value in os.environ.items() if key != "DJANGO_SETTINGS_MODULE"},
            "DATABASE_URL": re.sub(r"/[^/]*$", f"/{name}", given),
            "EXAMPLE_VAR": str(tmp_path),
        }
        server.execute(f"DROP DATABASE {name}")  # fails if a process is left that uses it


#: ``manage.py demo`` as if this Python had no more files than those of two packages, to walk through.
DEMO = """
import runpy, sys, sysconfig
from pathlib import Path
import email, html
folders = [str(Path(package.__file__).parent) for package in (email, html, html)]
real = sysconfig.get_paths
few = dict(zip(("stdlib", "purelib", "platlib"), folders))
sysconfig.get_paths = lambda *given: real(*given) if given else few
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
FACTS = (
    r"Rolled back +30 documents and 30 jobs in [\d.]+ s; left: 0 and 0",
    r"Batch +\d+ has these jobs; job \d+ runs after all of them",
    r"Committed +30 documents and 30 jobs in",
    r"30 of 30 +[\d,]+ jobs/s +depth 0",
    r"Jobs +30 finished: \d+ done, \d+ failed",
    r"Complete +30 files: \d+ indexed, \d+ failed; none missing, none twice",
    r"Summed up +by job \d+, which waited for the batch",
    r"Waited +p50 .* p95 .* p99",
    r"Ran +p50 .* p95 .* p99",
    r"Queue's share +\d.* per job \(\d processes? w",
    r"its job continued with step \d+, (vectors \d+|publish), after \d+\.\d s\n",
    r"Failed +1 Gone",
    r"Failed +1 TooLarge",
    r"Failed +1 NotText",
    r"Second run +\d+ unchanged",
    r"Found +\d+ documents? in",
    r"Health +Healthy: \d workers, .* jobs/",
    r"User +demo\n +Password +\S{8,}\n",
)


def test_it_tells_the_whole_story_and_then_serves_until_ctrl_c(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", DEMO, str(MANAGE), "demo", "--serve", "--files", "30"],
        env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    ) as process:  # fmt: skip
        try:
            assert process.stdout is not None
            lines: list[str] = []
            for line in process.stdout:
                lines.append(line)
                if "Ctrl-C to stop everything" in line:
                    break
            tells_the_whole_story("".join(lines), environment)
            [address] = re.findall(r"Search +(http://\S+)", "".join(lines))
            with urllib.request.urlopen(f"{address}?q=python", timeout=SECONDS) as page:  # noqa: S310
                assert "<mark>" in page.read().decode()
            monkeypatch.setattr(children, "VAR", Path(environment["EXAMPLE_VAR"]))
            with pytest.raises(CommandError, match="stop it first"), only_one():
                pass
            keeps_busy(environment)
            process.send_signal(signal.SIGINT)
            assert process.wait(SECONDS) == 0
        finally:
            process.terminate()
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(address, timeout=SECONDS)  # noqa: S310
    with psycopg.connect(environment["DATABASE_URL"]) as database:
        assert database.execute("SELECT count(*) FROM pgqueue_worker").fetchone() == (0,)


def tells_the_whole_story(printed: str, environment: dict[str, str]) -> None:
    facts = printed.partition("\nSearch: ")[0]
    assert [line for line in facts.splitlines() if len(line) > 80] == []
    unwrapped = re.sub(r"\n {16}", " ", printed)
    assert [fact for fact in FACTS if not re.search(fact, unwrapped)] == [], printed
    log = (Path(environment["EXAMPLE_VAR"]) / "demo-worker.log").read_text()
    (killed,) = re.findall(r"worker killed: its (\d+ jobs|job) ran again after \d+\.\d s \(", printed)
    given_back = re.findall(r"requeued (\d+) jobs? of the process that ended", log)
    hit = 1 if killed == "job" else int(killed.split()[0])
    assert len(given_back) == 2
    assert {str(hit), str(hit + 1)}.intersection(given_back), "the job of a schedule may be among them"
    recorded, of = re.findall(r"worker killed after (\d+) of (\d+) steps of handbook.txt:", printed)[0]
    assert 3 < int(recorded) < int(of)


def keeps_busy(environment: dict[str, str]) -> None:
    """New jobs keep coming while somebody looks at the console, which has the schedules of the app."""
    schedules = "SELECT paused_at FROM pgqueue_schedule WHERE declared_by = 'example_project.demo.tasks'"
    newest = "SELECT max(id) FROM pgqueue_job WHERE status = 'done' AND task_path LIKE '%index_document'"
    with psycopg.connect(environment["DATABASE_URL"], autocommit=True) as database:
        assert database.execute(schedules).fetchall() == [(None,), (None,)]

        def last() -> int:
            row = database.execute(newest).fetchone()
            assert row is not None
            return int(row[0])

        before = last()
        until(lambda: last() > before, what="another document to be indexed")


# --- manage.py seed_demo


def seed(*arguments: str) -> None:
    call_command(Command(), *arguments, stdout=StringIO())


@pytest.mark.django_db(transaction=True)
def test_there_is_every_kind_of_job_and_upkeep_leaves_them_as_they_are() -> None:
    seed("--rows", "1000")
    assert 1_000 < Job.objects.count() < 1_300
    assert set(Job.objects.values_list("status", flat=True)) == set(Job.Status.values)
    vitals = {vital(worker): worker.pk for worker in with_vitals(Worker.objects.all())}
    assert {*vitals} == set(Vital)
    assert all(model.objects.exists() for model in (JobBatch, Limit, Pause, Queue, Schedule))
    assert FailureGroup.objects.count() >= 5
    # All but the jobs of the dead worker, which recovery takes.
    dead = Job.objects.filter(worker=vitals[Vital.DEAD], status="running").values_list("pk", flat=True)
    jobs = f"SELECT * FROM pgqueue_job WHERE id <> ALL (ARRAY{[*dead, 0]}) ORDER BY id"
    before = fetch(jobs)
    session = connect("default")
    try:
        rounds = Rounds()
        for now in (100.0, 200.0, 300.0):
            rounds.run(session, now)
    finally:
        session.close()
    assert fetch(jobs) == before
    seed("--clear")
    tables = fetch("SELECT relname FROM pg_class WHERE relkind = 'r' AND relname LIKE 'pgqueue_%%'")
    filled = {table for (table,) in tables if fetch(f"SELECT FROM {table} LIMIT 1")}
    of_maintenance = {"pgqueue_depth", "pgqueue_duty", "pgqueue_gone", "pgqueue_ring"}
    assert filled <= {*of_maintenance, "pgqueue_status", "pgqueue_task"}


@pytest.mark.django_db
def test_a_database_that_is_in_use_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """With --yes, what the queues of the user have stays as it is, also their counts of this minute and their
    sums, alone and with those of all queues.
    """
    own = JobFactory.create(queue_name="default")
    for queue in ("default", ""):
        StatRollup.objects.create(
            span="day", start=timezone.now(), queue_name=queue, task_path="", done=7, wait_histogram=[7],
            run_histogram=[7],
        )  # fmt: skip
    fetch("DELETE FROM pgqueue_depth")
    fetch("SELECT _pgqueue_count_depth()")
    WorkerFactory.create(host="app-1")
    with pytest.raises(
        CommandError, match="1 live workers would see these jobs, and it has jobs of your own"
    ):
        seed("--rows", "1000")

    def sleep(seconds: float) -> None:
        raise KeyboardInterrupt  # --stay: heartbeats are sent until somebody stops it

    monkeypatch.setattr("time.sleep", sleep)
    seed("--rows", "1000", "--yes", "--stay")
    assert Job.objects.count() > 1000
    assert {vital(worker) for worker in with_vitals(Worker.objects.all())} == set(Vital)
    seed("--clear")
    assert list(Job.objects.all()) == [own]
    assert fetch("SELECT queue_name, ready FROM pgqueue_depth") == [("default", 1)]
    assert {*StatRollup.objects.values_list("queue_name", "done")} == {("default", 7), ("", 7)}
