"""Exceptions that led to one another: many are let go before anybody formats them all."""

from __future__ import annotations

import json

import pytest

from django_pgqueue.worker.executor.errors import cut_chain, error_entry


def chain(length: int, *, explicit: bool) -> ValueError:
    """Errors that led to one another; the last."""
    error: ValueError | None = None
    for number in range(length):
        new = ValueError(f"number {number}.")
        if explicit:
            new.__cause__ = error
        else:
            new.__context__ = error
        error = new
    assert error is not None
    return error


def traceback_of(error: BaseException) -> str:
    cut_chain(error)
    text: str = json.loads(error_entry(error, worker=1, attempt=1, limit=1_000_000))["traceback"]
    return text


@pytest.mark.parametrize("explicit", [False, True])
def test_of_many_errors_that_led_to_one_another_the_last_are_shown(explicit: bool) -> None:
    text = traceback_of(chain(1_000, explicit=explicit))
    assert text.count("ValueError: number") == 100
    assert "number 900." in text
    assert text.endswith("ValueError: number 999.\n")


def test_a_chain_of_usual_length_is_shown_whole() -> None:
    assert traceback_of(chain(100, explicit=False)).count("ValueError: number") == 100


def test_errors_that_led_to_one_another_in_a_circle_end() -> None:
    first, second = ValueError("first"), ValueError("second")
    first.__context__, second.__cause__ = second, first
    assert traceback_of(first).count("ValueError:") == 2
