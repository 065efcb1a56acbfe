"""Exceptions look as the standard library prints them, and known places are not looked at again."""

from __future__ import annotations

import linecache
import sys
import traceback
from collections.abc import Callable

import pytest

from django_pgqueue.worker import logs
from django_pgqueue.worker.logs import format_error


@pytest.fixture(autouse=True)
def _nothing_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "_texts", {})


def plain() -> None:
    raise ValueError("plain: \n two lines")


def called_in_an_expression() -> None:
    numbers = {"a": [1, 2]}
    print(numbers["a"][0] + numbers["a"][5])


def over_many_lines() -> None:
    int(
        "not a number",
        base=10,
    )


def with_cause() -> None:
    try:
        plain()
    except ValueError as error:
        raise KeyError("with cause") from error


def with_context() -> None:
    try:
        with_cause()
    except KeyError:
        plain()


def without_context() -> None:
    try:
        plain()
    except ValueError:
        raise TypeError from None


def with_notes() -> None:
    error = RuntimeError("with notes")
    error.add_note("first\nof two lines")
    error.add_note("second")
    raise error


def group() -> None:
    errors: list[Exception] = []
    for function in (with_cause, with_notes, called_in_an_expression):
        try:
            function()
        except Exception as error:
            errors.append(error)
    try:
        raise ExceptionGroup("inner", errors)
    except ExceptionGroup as inner:
        raise ExceptionGroup("outer", [inner, ValueError("alone")]) from errors[0]


def deep(level: int = 30) -> None:
    if level == 0:
        plain()
    deep(level - 1)


def bad_syntax() -> None:
    compile("a = (1,\n  2", "<typed>", "exec")


def misspelled() -> None:
    print(sys.maxsiz)  # type: ignore[attr-defined]


FUNCTIONS = [
    plain, called_in_an_expression, over_many_lines, with_cause, with_context, without_context, with_notes,
    group, deep, bad_syntax, misspelled,
]  # fmt: skip


def raised_by(function: Callable[[], None]) -> BaseException:
    try:
        function()
    except BaseException as error:
        return error
    raise AssertionError("it did not raise")


@pytest.mark.parametrize("function", FUNCTIONS)
def test_nothing_is_missing_the_first_time_and_later(function: Callable[[], None]) -> None:
    for _ in range(3):
        error = raised_by(function)
        expected = "".join(traceback.format_exception(error))
        assert format_error(error, error.__traceback__) == expected
    assert "Traceback (most recent call last)" in expected


def test_frames_that_are_not_asked_for_are_left_out() -> None:
    error = raised_by(with_cause)
    assert error.__traceback__ is not None
    text = format_error(error, error.__traceback__.tb_next)
    assert "in raised_by" not in text
    assert text.count("in with_cause") == 2  # once in the cause


def test_a_known_place_is_not_formatted_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object, **options: object) -> str:
        raise AssertionError("it is known")

    error = raised_by(group)
    expected = format_error(error, error.__traceback__)
    monkeypatch.setattr(traceback.StackSummary, "format_frame_summary", fail)
    assert format_error(error, error.__traceback__) == expected


def test_two_calls_on_one_line_are_two_places() -> None:
    first = True

    def fail() -> None:
        print(int("one") if first else float("two"))

    for first in (True, False):  # noqa: B007 - read by the function
        error = raised_by(fail)
        assert format_error(error, error.__traceback__) == "".join(traceback.format_exception(error))


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], BaseException]:
    """Run a source that is shown under one and the same name, and return what it raises."""

    def run(source: str) -> BaseException:
        monkeypatch.setitem(linecache.cache, "<made>", (len(source), None, [source + "\n"], "<made>"))
        return raised_by(lambda: exec(compile(source, "<made>", "exec"), {}))  # noqa: S102

    return run


def test_code_that_was_made_at_run_time_is_read_each_time(made: Callable[[str], BaseException]) -> None:
    for source in ("int('one')", "int('two')"):
        error = made(source)
        assert f"    {source}\n" in format_error(error, error.__traceback__)


def test_the_number_of_known_places_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "MOST", 3)
    for function in FUNCTIONS:
        error = raised_by(function)
        assert format_error(error, error.__traceback__) == "".join(traceback.format_exception(error))
        assert 1 <= len(logs._texts) <= 3
