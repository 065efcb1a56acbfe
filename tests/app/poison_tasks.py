"""Tasks for jobs that are poison: arguments of any shape, huge results and errors, many failures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django_pgqueue import task

from .hostile_tasks import ERRORS, Recursive, Unprintable

HUGE = 50 * 2**20  # characters


class Unpicklable(Exception):
    def __reduce__(self) -> Any:
        raise TypeError("this cannot be pickled")


def _cause(count: int, length: int) -> None:
    """Raise an error that goes back to others, all of them with long messages."""
    try:
        if count:
            _cause(count - 1, length)
    except ValueError as error:
        raise ValueError("x" * length) from error
    raise ValueError("x" * length)


def _deep(levels: int) -> None:
    if not levels:
        raise KeyError("deep")
    _deeper(levels - 1)


def _deeper(levels: int) -> None:  # so that no lines of the traceback are the same as those before
    _deep(levels)


def _raise(error: BaseException) -> None:
    raise error


#: Ways to fail, by name.
FAILURES: dict[str, Callable[[], Any]] = {
    "message of 50 MB": lambda: _raise(RuntimeError("x" * HUGE)),
    "traceback of 50 MB": lambda: _cause(49, 2**20),
    "name of 1 MB": lambda: _raise(type("E" * 2**20, (Exception,), {})()),
    "str raises": lambda: _raise(Unprintable()),
    "str recurses": lambda: _raise(Recursive()),
    "cannot be pickled": lambda: _raise(Unpicklable("a")),
    "characters that cannot be stored": lambda: _raise(ValueError("\0 \ud800 \U0010ffff")),
    "SystemExit": ERRORS["SystemExit"],
}

#: What a task returns, by name.
RESULTS: dict[str, Callable[[], Any]] = {
    "text of 50 MB": lambda: "x" * HUGE,
    "list of 50 MB": lambda: list(range(HUGE // 8)),
    "not a number": lambda: float("nan"),
    "NUL": lambda: "a\0b",
}


@task(max_attempts=2, backoff=0)
def echo(*values: Any, **named: Any) -> Any:
    """Return the arguments."""
    return [list(values), named]


@task(max_attempts=2, backoff=0)
def changed(order: int, *, currency: str) -> None:
    """Have another signature than the calls that are in the queue."""


@task(max_attempts=2, backoff=0)
def give(kind: str) -> Any:
    return RESULTS[kind]()


@task(max_attempts=1)
def fail(kind: str) -> None:
    FAILURES[kind]()


@task(max_attempts=1)
def fail_deeply(number: int) -> None:
    """Fail with a long traceback. The place is the same each time, and the message is not."""
    try:
        _deep(40)
    except KeyError as error:
        raise ValueError(f"order {number} is poison") from error
