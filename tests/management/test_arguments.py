"""Durations and numbers on the command line."""

from __future__ import annotations

import os
from argparse import ArgumentTypeError
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.management import load_command_class

from django_pgqueue.management import _arguments
from django_pgqueue.management._arguments import duration, seconds, since, span
from django_pgqueue.monitoring.spans import DAY, HOUR, WEEK


@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("90", timedelta(seconds=90)), ("0.5", timedelta(seconds=0.5)), ("90s", timedelta(seconds=90)),
        ("30m", timedelta(minutes=30)), ("1.5h", timedelta(minutes=90)), ("1d", timedelta(days=1)),
        ("0", timedelta()),
    ],
)  # fmt: skip
def test_a_duration(text: str, length: timedelta) -> None:
    assert duration(text) == since(text) == length
    assert seconds()(text) == seconds()(length) == seconds()(length.total_seconds())


@pytest.mark.parametrize(
    "text", ["", "-5", "m", "1w", "2 h", "1h30m", "5M", "1e3", "inf", "99999999999", "40000d"]
)
def test_what_is_no_duration(text: str) -> None:
    for read in (duration, seconds()):
        with pytest.raises(ArgumentTypeError):
            read(text)


@pytest.mark.parametrize("value", ["0", 0, True, None, timedelta(days=40_000)])
def test_what_is_too_short_or_too_long_or_something_else(value: Any) -> None:
    with pytest.raises(ArgumentTypeError, match=r"is not a duration from 0\.1 s to 100 years"):
        seconds(0.1)(value)


def test_a_span() -> None:
    assert [span(text) for text in ("1h", "60m", "3600", "24h", "1d", "7d")] == [
        HOUR,
        HOUR,
        HOUR,
        DAY,
        DAY,
        WEEK,
    ]
    with pytest.raises(ArgumentTypeError, match="'2h' is none of the spans 1h, 24h, 7d, 30d"):
        span("2h")


@pytest.mark.parametrize(
    ("command", "arguments", "name", "value"),
    [
        ("runqueueworker", "--grace 2m", "grace", 120),
        ("pgqueue", "health --age 2m", "age", 120),
        ("pgqueue", "top --interval 2m", "interval", 120),
        ("pgqueue", "pause --everything --for 2m", "duration", 120),
        ("pgqueue", "jobs --since 2m", "since", timedelta(minutes=2)),
        ("pgqueue", "stats --span 1d", "span", DAY),
        ("pgqueue", "failures --span 1d", "span", DAY),
    ],
)
def test_options_that_are_durations(command: str, arguments: str, name: str, value: Any) -> None:
    parser = load_command_class("django_pgqueue", command).create_parser("manage.py", command)
    assert getattr(parser.parse_args(arguments.split()), name) == value


@pytest.mark.parametrize(
    ("quota", "expected"),
    [(None, 3), ("max 100000", 3), ("150000 100000", 2), ("800000 100000", 3), ("20000 100000", 1)],
)
def test_auto_is_a_process_for_each_cpu_that_may_be_used(
    quota: str | None, expected: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "cpu.max"
    if quota is not None:
        path.write_text(f"{quota}\n")
    monkeypatch.setattr(_arguments, "_CPU_QUOTA", path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 2, 3})
    assert _arguments.processes("auto") == expected
    assert _arguments.processes(4) == 4


@pytest.mark.parametrize("given", ["0", "many", "-1"])
def test_a_number_of_processes_that_cannot_be(given: str) -> None:
    with pytest.raises(ArgumentTypeError):
        _arguments.processes(given)
