"""The log: what a terminal shows at each verbosity, that the project's own logging wins, and exceptions as
the standard library prints them, without a second look at known places.
"""

from __future__ import annotations

import linecache
import logging
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest

from django_pgqueue.formatting import MOST_BYTES
from django_pgqueue.worker import logs
from django_pgqueue.worker.logs import _Formatter, configure_logging, format_error, logging_restored


@pytest.fixture
def manager(monkeypatch: pytest.MonkeyPatch) -> logging.Manager:
    """Loggers that nobody else, pytest included, has touched: ``configure_logging`` finds them."""
    root = logging.RootLogger(logging.WARNING)
    root.manager = manager = logging.Manager(root)
    monkeypatch.setattr(logs, "logging", SimpleNamespace(**{**vars(logging), "getLogger": manager.getLogger}))
    return manager


def ours(manager: logging.Manager) -> list[logging.Logger]:
    return [manager.getLogger(name) for name in ("django_pgqueue", "django_pgqueue.job")]


@pytest.mark.parametrize(("verbosity", "package", "jobs"), [
    (0, logging.WARNING, logging.ERROR), (1, logging.INFO, logging.WARNING), (2, logging.INFO, logging.INFO),
    (3, logging.DEBUG, logging.DEBUG),
])  # fmt: skip
def test_verbosity(verbosity: int, package: int, jobs: int, manager: logging.Manager) -> None:
    configure_logging(verbosity)
    assert [logger.level for logger in ours(manager)] == [package, jobs]
    assert len(ours(manager)[0].handlers) == 1


def test_a_project_that_has_configured_logging_is_left_alone(manager: logging.Manager) -> None:
    manager.root.addHandler(logging.NullHandler())
    configure_logging(3)
    assert [(logger.handlers, logger.level) for logger in ours(manager)] == 2 * [([], logging.NOTSET)]


def test_what_was_configured_is_taken_back_however_the_command_ends(manager: logging.Manager) -> None:
    loggers = ours(manager)
    loggers[1].setLevel(logging.CRITICAL)
    with suppress(SystemExit), logging_restored():
        configure_logging(2)
        assert [logger.level for logger in loggers] == [logging.INFO, logging.INFO]
        raise SystemExit
    assert [logger.level for logger in loggers] == [logging.NOTSET, logging.CRITICAL]
    assert [logger.handlers for logger in loggers] == [[], []]


@pytest.mark.parametrize("message", ["x" * 10_000_000, "\ud800" * 100_000], ids=["long", "surrogates"])
def test_a_huge_exception_is_cut_in_the_log(message: str) -> None:
    text = _Formatter().formatException((ValueError, ValueError(message), None))
    assert len(text.encode(errors="surrogatepass")) < MOST_BYTES + 100
    assert text.startswith("ValueError: ")
    assert "bytes left out" in text


# -- exceptions


@pytest.fixture(autouse=True)
def _nothing_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "_texts", {})


def plain() -> None:
    raise ValueError("plain: \n two lines\n\n")


def called_in_an_expression() -> None:
    numbers = {"a": [1, 2]}
    print(numbers["a"][0] + numbers["a"][5])


def over_many_lines() -> None:
    int("not a number", base=10)


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
    errors = [raised_by(each) for each in (with_cause, with_notes, called_in_an_expression)]
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


def raised_by(function: Callable[[], None]) -> Exception:
    try:
        function()
    except Exception as error:
        return error
    raise AssertionError("it did not raise")


def shown(error: BaseException) -> str:
    """Return the text of an exception, which is that of the standard library."""
    text = format_error(error, error.__traceback__)
    assert text == "".join(traceback.format_exception(error))
    return text


@pytest.mark.parametrize("function", FUNCTIONS)
def test_nothing_is_missing_the_first_time_and_later(function: Callable[[], None]) -> None:
    for _ in range(3):
        error = raised_by(function)
        assert "Traceback (most recent call last)" in shown(error)
        given: Any = (type(error), error, error.__traceback__)
        assert _Formatter().formatException(given) == logging.Formatter().formatException(given)


def test_no_exception_looks_as_usual() -> None:
    nothing = (None, None, None)
    assert _Formatter().formatException(nothing) == logging.Formatter().formatException(nothing)


def test_frames_that_are_not_asked_for_are_left_out() -> None:
    error = raised_by(with_cause)
    assert error.__traceback__ is not None
    text = format_error(error, error.__traceback__.tb_next)
    assert "in raised_by" not in text
    assert text.count("in with_cause") == 2  # once in the cause


def test_a_known_place_is_not_formatted_again(monkeypatch: pytest.MonkeyPatch) -> None:
    error = raised_by(group)
    expected = shown(error)
    monkeypatch.setattr(traceback.StackSummary, "format_frame_summary", lambda *_, **__: "formatted again")
    assert format_error(error, error.__traceback__) == expected


def test_two_calls_on_one_line_are_two_places() -> None:
    first = True

    def fail() -> None:
        print(int("one") if first else float("two"))

    for first in (True, False):  # noqa: B007 - read by the function
        shown(raised_by(fail))


def test_code_that_was_made_at_run_time_is_read_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several such sources may have one name."""
    for source in ("int('one')", "int('two')"):
        monkeypatch.setitem(linecache.cache, "<made>", (len(source), None, [source + "\n"], "<made>"))
        error = raised_by(lambda source=source: exec(compile(source, "<made>", "exec"), {}))  # type: ignore[misc] # noqa: S102
        assert f"    {source}\n" in format_error(error, error.__traceback__)


def test_the_number_of_known_places_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "MOST", 3)
    for function in FUNCTIONS:
        shown(raised_by(function))
        assert 1 <= len(logs._texts) <= 3
