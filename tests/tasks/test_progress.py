"""The values of progress, and ``track()``."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest

from django_pgqueue import current_job, track
from django_pgqueue.tasks.progress import Progress, progress_of, stored_progress
from django_pgqueue.testing import fake_job, reported_progress


@pytest.mark.parametrize(("done", "total", "stored"), [
    (0, 0, (0, 0)),
    (12, 10, (12, 10)),  # an estimate that was too low
    (2.5, 10, (2.5, 10)),
    (2.0, None, (2, None)),
    (Decimal("0.5"), Decimal(3), (0.5, 3)),
    (Fraction(1, 4), None, (0.25, None)),
    (2**53, 2**53, (2**53, 2**53)),
])  # fmt: skip
def test_numbers_that_are_stored(done: Any, total: Any, stored: tuple[Any, Any]) -> None:
    assert progress_of(done, total, "") == (*stored, "")


@pytest.mark.parametrize(
    "number",
    [-1, -0.1, float("nan"), float("inf"), 2**53 + 1, 10**400, Decimal("NaN"), Decimal("sNaN"), Decimal(-1)],
)  # fmt: skip
def test_numbers_that_are_refused(number: Any) -> None:
    with fake_job() as job:
        with pytest.raises(ValueError, match=r"progress\(done=...\) takes a number from 0 to 2\*\*53"):
            job.set_progress(number)
        with pytest.raises(ValueError, match=r"progress\(total=...\) takes a number from 0 to 2\*\*53"):
            job.set_progress(0, number)


@pytest.mark.parametrize("value", ["5", None, True, 1j, object()])
def test_values_that_are_refused(value: Any) -> None:
    with fake_job() as job, pytest.raises(TypeError, match=r"progress\(done=...\) takes a number, not"):
        job.set_progress(value)


def test_notes_are_cut_and_cleaned() -> None:
    assert progress_of(1, None, "x" * 1000).note == "x" * 199 + "…"
    assert progress_of(1, None, "a\0b\ud800c").note == "a\\x00b\\ud800c"
    with pytest.raises(TypeError, match="takes a str, not None"):
        progress_of(1, None, None)


def test_the_fraction() -> None:
    given = [Progress(1, 4), Progress(0, 0), Progress(12, 10), Progress(3)]
    assert [each.fraction for each in given] == [0.25, 1, 1, None]
    assert str(stored_progress({"done": 2.0, "total": 4.0, "note": ""})) == str(Progress(2, 4))
    assert stored_progress(None) is None


def test_a_call_replaces_the_one_before() -> None:
    with reported_progress() as reported, fake_job() as job:
        job.set_progress(5, 10, "a")
        job.set_progress(3)
        assert job.progress == Progress(3)
    assert reported == [(5, 10, "a"), (3, None, "")]


def test_a_million_calls_take_about_a_second() -> None:
    with fake_job() as job:
        began = time.thread_time()
        for number in range(20_000):
            job.set_progress(number, 20_000)
        assert time.thread_time() - began < 0.2  # ten times what it takes


def test_track_counts_what_is_done_until_the_loop_stops_with_a_note_for_each_item() -> None:
    with reported_progress() as reported, fake_job():
        assert list(track("ab")) == ["a", "b"]
        for item in track(iter("abc"), total=3):
            if item == "b":
                break
        assert list(track(range(5), note=lambda n: f"page {n}", every=2)) == list(range(5))
    assert reported == [
        (0, 2, ""), (1, 2, ""), (2, 2, ""), (2, 2, ""), (0, 3, ""), (1, 3, ""), (0, 5, ""), (0, 5, "page 0"),
        (2, 5, "page 0"), (2, 5, "page 2"), (4, 5, "page 2"), (4, 5, "page 4"), (5, 5, "page 4"),
    ]  # fmt: skip


async def numbers() -> AsyncIterator[int]:
    for number in range(2):
        yield number


def test_track_in_async_code() -> None:
    async def use() -> list[list[int]]:
        return [[n async for n in track(numbers())], [n async for n in track([1, 2], note="x")]]

    with reported_progress() as reported, fake_job():
        assert asyncio.run(use()) == [[0, 1], [1, 2]]
    assert reported[:4] == [(0, None, ""), (1, None, ""), (2, None, ""), (2, None, "")]
    assert reported[4:] == [(0, 2, "x"), (1, 2, "x"), (2, 2, "x"), (2, 2, "x")]
    assert asyncio.run(use()) == [[0, 1], [1, 2]]  # outside of a job
    assert list(track(n for n in range(3))) == [0, 1, 2]
    assert len(reported) == 8


@pytest.mark.parametrize(("arguments", "error", "words"), [
    ({"iterable": 5}, TypeError, "takes an iterable, not 5"),
    ({"every": 0}, ValueError, r"every=...\) takes a whole number from 1, not 0"),
    ({"every": True}, ValueError, "not True"),
    ({"total": -1}, ValueError, r"total=...\) takes a number from 0"),
    ({"note": 5}, TypeError, "takes a str, not 5"),
])  # fmt: skip
def test_what_track_refuses(arguments: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        track(**{"iterable": [], **arguments})


def test_progress_without_a_job() -> None:
    with pytest.raises(LookupError, match="No job is running here"):
        current_job().set_progress(1)
