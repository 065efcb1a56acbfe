"""Counts with their nouns, lengths of time, rates, and log lines without control characters."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import django_pgqueue
from django_pgqueue.formatting import MOST_BYTES, age, counted, exact, get_logger, rate

PACKAGE = Path(django_pgqueue.__file__).parent


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0 jobs"), (1, "1 job"), (2, "2 jobs"), (12_345, "12345 jobs")]
)
def test_a_noun_follows_its_number(number: int, text: str) -> None:
    assert counted(number, "job") == text


def test_an_irregular_plural_is_given() -> None:
    assert [counted(number, "process", "processes") for number in (1, 2)] == ["1 process", "2 processes"]


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0 s"), (0.04, "0.0 s"), (0.42, "0.4 s"), (1.9, "1 s"), (90, "1 min")]
)
def test_an_age_below_a_second_has_a_digit(seconds: float, text: str) -> None:
    assert age(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.5, "0.5 s"), (1, "1 s"), (60, "1 min"), (90, "90 s"), (3600, "1 h"), (3660, "1 h 1 min"),
        (90_000, "1 d 1 h"), (90_060, "90,060 s"), (0, "0 s"),
    ],
)  # fmt: skip
def test_an_exact_length_leaves_nothing_out(seconds: float, text: str) -> None:
    assert exact(timedelta(seconds=seconds)) == text


@pytest.mark.parametrize(
    ("count", "seconds", "text"),
    [
        (3, 1, "3 a second"), (100, 60, "100 a minute"), (1_000, 3600, "1,000 an hour"),
        (1, 86_400, "1 a day"), (100, 300, "100 in 5 min"), (1, 90, "1 in 90 s"),
    ],
)  # fmt: skip
def test_a_rate_is_in_words(count: int, seconds: float, text: str) -> None:
    assert rate(count, timedelta(seconds=seconds)) == text


BELL = "a\x07\x1b[2J\u202egpj.exe"
WRITTEN = "a\\x07\\x1b[2J\\u202egpj.exe"


class Unprintable(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


@pytest.fixture
def lines() -> Iterator[list[str]]:
    """What a project's own handler writes of a logger of the package."""
    written: list[str] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            written.append(self.format(record))

    logger, handler = get_logger("django_pgqueue.tests"), Handler()
    logger.addHandler(handler)
    yield written
    logger.removeHandler(handler)


@pytest.mark.parametrize(
    ("message", "arguments", "line"),
    [
        ("job %s %s: %d", (BELL, ValueError(f"no\n{BELL}"), 5), f"job {WRITTEN} no\\n{WRITTEN}: 5"),
        ("%(path)s is unknown", ({"path": BELL},), f"{WRITTEN} is unknown"),
        ("%r %s", (["x\n"], ["x\n"]), "['x\\n'] ['x\\n']"),
        ("two\nlines", (), "two\nlines"),
    ],
)
def test_no_line_of_a_log_has_control_characters(
    lines: list[str], message: str, arguments: tuple[Any, ...], line: str
) -> None:
    get_logger("django_pgqueue.tests").warning(message, *arguments)
    assert lines == [line]


@pytest.mark.parametrize("depth", [0, 1])
def test_no_traceback_in_a_log_has_control_characters(lines: list[str], depth: int) -> None:
    try:
        try:
            raise ValueError(f"first\n{BELL}" + "x" * 100_000)
        except ValueError as error:
            if depth:
                raise KeyError("another") from error
            raise
    except Exception:
        get_logger("django_pgqueue.tests").exception("failed")
    (text,) = lines
    assert text.startswith("failed\nTraceback (most recent call last):\n")
    assert f"ValueError: first\n{WRITTEN}" in text
    assert all(line.isprintable() for line in text.split("\n"))
    assert len(text.encode()) < MOST_BYTES + 200


def test_an_exception_without_a_text_harms_nobody() -> None:
    """What is wrong with it is left to logging, which reports it."""
    error = Unprintable()
    given = {"msg": "failed: %s", "args": (error,), "exc_info": (Unprintable, error, None)}
    record = logging.makeLogRecord(given)
    assert get_logger("django_pgqueue.tests").filter(record)
    assert record.args == (error,)


def test_every_logger_of_the_package_is_of_this_kind() -> None:
    made = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        if "logging.getLogger(" in path.read_text()
    }
    assert made == {
        "formatting.py",  # makes them
        "compat.py",  # imports nothing of the package, and logs only a repr()
        "worker/executor/running_job.py",  # other people's loggers, by their names
        "worker/executor/task_signals.py",  # those of Django
        "worker/logs.py",  # sets levels
    }
