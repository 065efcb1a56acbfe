"""Counts with their nouns, lengths of time, and rates."""

from __future__ import annotations

from datetime import timedelta

import pytest

from django_pgqueue.formatting import age, counted, exact, rate


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
