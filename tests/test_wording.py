"""Counts with their nouns, and lengths of time."""

from __future__ import annotations

import pytest

from django_pgqueue.wording import age, counted


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
