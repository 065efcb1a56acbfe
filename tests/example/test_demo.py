"""What the demonstration prints, the figures in it, and the files that it indexes."""

from __future__ import annotations

import io
import os
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError
from django.utils import timezone

from django_pgqueue.models import Job
from example_project.demo import corpus
from example_project.demo.closing import wrap
from example_project.demo.display import Live, Screen, duration, printable
from example_project.demo.story import Story
from example_project.demo.summary import percentile, summarize
from example_project.search.discovery import walk
from example_project.search.indexing import Report
from example_project.search.models import Run


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


def check(**summary: Any) -> str:
    """What the demonstration says of a run with this summary."""
    wrote = {"files": 3, "indexed": 2, "failed": {"gone": 1}, "troubles": [], **summary} if summary else None
    run = Run.objects.create(batch_id=Run.objects.count(), files=3, summary=wrote)
    last = Job.objects.create(
        task_path="t", status="failed" if wrote is None else "done", shelf=1, finished_at=timezone.now()
    )
    screen = io.StringIO()
    Story(Screen(screen), 3).check(Report(run=run, summary=last, job_ids=[1, 2, 3]))
    return screen.getvalue()


@pytest.mark.django_db
def test_a_whole_index_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Job, "join", lambda job, timeout: job)  # it waits in no transaction, such as this one
    assert "3 files: 2 indexed, 1 failed; none missing, none twice" in check(troubles=[])
    with pytest.raises(CommandError, match="1 jobs are missing"):
        check(troubles=["1 jobs are missing"])
    with pytest.raises(CommandError, match="The job that sums up the run is failed"):
        check()
