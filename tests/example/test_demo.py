from __future__ import annotations

import io
import os
import re
import select
import signal
import socket
import threading
from datetime import timedelta
from pathlib import Path

import pytest
from django.core.management import CommandError
from django.utils import timezone

from django_pgqueue.models import Job
from example_project.demo import children, corpus
from example_project.demo.children import Child
from example_project.demo.closing import wrap
from example_project.demo.display import Live, Screen, duration, printable
from example_project.demo.serving import free_address
from example_project.demo.summary import percentile, summarize
from example_project.project.secrets import kept_secret
from example_project.search.discovery import walk


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    return Terminal()


def test_colours_are_for_terminals_that_want_them(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert Screen(terminal).mark("hit") == "\x1b[30;43mhit\x1b[0m"
    assert Screen(io.StringIO()).mark("hit") == "[hit]"
    monkeypatch.setenv("NO_COLOR", "1")
    assert Screen(terminal).mark("hit") == "[hit]"


def test_text_of_files_cannot_command_the_terminal() -> None:
    assert printable("a\x1b[2Jb\r\n\x9bc\u202e") == "a [2Jb   c "


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.0000421, "42 µs"), (0.0042, "4.2 ms"), (0.42, "420 ms"), (42.04, "42.0 s")]
)
def test_durations_have_the_unit_that_suits_them(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_without_a_terminal_progress_is_plain_lines() -> None:
    stream = io.StringIO()
    live = Live(Screen(stream), 1000)
    for depth in (1000, 600, 300):
        live.update(depth, 0)
    live.update(0, 3, is_last=True)
    lines = stream.getvalue().splitlines()
    assert len(lines) == 2, "one at the start, none within two seconds, one at the end"
    assert re.fullmatch(r" +\d+\.\d s  1,000 of 1,000  [\d,]+ jobs/s  depth 0  3 failed", lines[-1])
    assert "\x1b" not in stream.getvalue()


def test_on_a_terminal_progress_is_drawn_over_itself(terminal: Terminal) -> None:
    live = Live(Screen(terminal), 1000)
    live.update(500, 0)
    first = terminal.getvalue()
    live.update(0, 2)
    second = terminal.getvalue()[len(first) :]
    assert "500 of 1,000" in first
    assert not first.startswith("\x1b[3A")
    assert second.startswith("\x1b[3A")
    assert second.count("\x1b[2K") == 3
    assert "100%" in second
    assert "2 failed" in second


def test_what_is_said_meanwhile_stays_above_the_drawing(terminal: Terminal) -> None:
    live = Live(Screen(terminal), 1000)
    live.update(500, 0)
    first = len(terminal.getvalue())
    live.say("news")
    live.update(0, 0)
    news, rest = terminal.getvalue()[first:].split("news\n")
    assert news == "\x1b[3A\r\x1b[2K  ", "over the first of the three lines"
    assert not rest.startswith("\x1b[3A"), "the three lines are drawn anew below it"


def test_extracts_are_wrapped_between_words_and_matches_kept() -> None:
    pieces = [("one  two\n\nthree ", False), ("match", True), ("ing a-word-too-long-for-a-line", False)]
    lines = wrap(pieces, 10)
    assert ["".join(word for word, _ in line).rstrip() for line in lines] == [
        "one two",
        "three",
        "matching",
        "a-word-too-long-for-a-line",
    ]
    assert [word for line in lines for word, matched in line if matched] == ["match"]


def test_a_wanted_port_is_taken_or_refused_and_none_means_any() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(CommandError, match=r"cannot be used\. Choose another port with --port"):
            free_address(port)
    assert free_address(port) == f"127.0.0.1:{port}"
    assert re.fullmatch(r"127\.0\.0\.1:\d+", free_address(None))


@pytest.mark.parametrize(("percent", "value"), [(0, 1), (50, 51), (95, 96), (99, 100), (100, 100)])
def test_percentiles_are_of_the_nearest_rank(percent: float, value: float) -> None:
    assert percentile([float(number) for number in range(1, 101)], percent) == value
    assert percentile([], percent) == 0


@pytest.mark.django_db
def test_the_summary_counts_what_is_the_queues_own() -> None:
    start = timezone.now()

    def at(seconds: float) -> object:
        return start + timedelta(seconds=seconds)

    def job(worker: int, began: float, ended: float, **columns: object) -> int:
        times = {"last_attempted_at": at(began), "finished_at": at(ended), "run_after": at(-1), "shelf": 1}
        return Job.objects.create(**{"task_path": "t", "worker": worker, **times, **columns}).pk

    error = {
        "class": "some.module.NotText",
        "message": "is binary",
        "started_at": f"{at(1):%Y-%m-%dT%H:%M:%S.%f}+00:00",
        "finished_at": f"{at(1.5):%Y-%m-%dT%H:%M:%S.%f}+00:00",
    }
    first = job(1, 0, 1, status="done", result={"seconds": 0.75})
    job(1, 1, 2, status="failed", errors=[error], shelf=9)
    last = job(2, 0.5, 1, status="done", result={"seconds": 0.5})
    summary = summarize(first, last)
    assert (summary.jobs, summary.done, summary.failed, summary.workers) == (3, 2, 1, 2)
    assert summary.elapsed == 2
    assert summary.rate == 1.5
    assert summary.worked == 2.5
    assert summary.ran == [0.5, 0.5, 0.75]
    assert summary.waited == [1, 1.5, 2]
    assert summary.overhead == pytest.approx((2.5 - 1.75) / 3)
    assert [(failure.kind, failure.count, failure.example) for failure in summary.failures] == [
        ("NotText", 1, "is binary")
    ]


@pytest.mark.django_db
def test_the_summary_of_nothing_is_zero() -> None:
    summary = summarize(1, 0)
    assert (summary.jobs, summary.rate, summary.overhead, summary.elapsed) == (0, 0, 0, 0)


def test_surprises_are_found_by_a_walk_and_one_vanishes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(corpus, "VAR", tmp_path)
    for _ in range(2):  # the second run replaces the files of the first
        with corpus.surprising_files():
            names = {
                Path(found.path).name for found in walk(corpus.surprises(), suffixes=corpus.SUFFIXES).files
            }
            assert names >= {"gone.txt", "huge.txt", "picture.txt"}
        assert not (corpus.surprises() / "gone.txt").exists()


def test_the_corpus_is_this_pythons_own_files() -> None:
    folders = corpus.roots()
    assert Path(os.__file__).resolve().parent in folders
    assert any(Path(pytest.__file__).resolve().is_relative_to(folder) for folder in folders)
    assert len(set(folders)) == len(folders)


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
