"""The entry of a failed attempt: chained exceptions."""

from __future__ import annotations

import json

from django_pgqueue.worker.executor.errors import error_entry


def traceback_of(error: BaseException) -> str:
    text: str = json.loads(error_entry(error, worker=1, attempt=1, limit=1_000_000))["traceback"]
    return text


def test_errors_that_led_to_one_another_are_shown() -> None:
    error = None
    for number in range(100):
        following = ValueError(f"number {number}.")
        following.__context__ = error
        error = following
    assert error is not None
    text = traceback_of(error)
    assert text.count("ValueError: number") == 100
    assert text.endswith("ValueError: number 99.\n")


def test_errors_that_led_to_one_another_in_a_circle_end() -> None:
    first, second = ValueError("first"), ValueError("second")
    first.__context__, second.__cause__ = second, first
    assert traceback_of(first).count("ValueError:") == 2


def test_a_class_with_a_long_name_makes_no_long_entry() -> None:
    error = type("E" * 100_000, (Exception,), {})()
    assert len(error_entry(error, worker=1, attempt=1, limit=1_000)) < 2_000
