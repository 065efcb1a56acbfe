"""Which failures have the same fingerprint."""

from __future__ import annotations

import linecache
import types
from collections.abc import Callable
from typing import Any

import pytest

from django_pgqueue.exceptions import TaskTimeout
from django_pgqueue.worker.executor.errors import fingerprint

CODE = """
{lines}
import json

def broken(kind):
    if kind == "library":
        json.loads("no")
    if kind == "nothing":
        raise ValueError("nothing")
    if kind == "cause":
        try:
            {{}}["key"]
        except KeyError as error:
            raise ValueError("cause") from error
    raise kind

def caller(kind):
    broken(kind)

def other(kind):
    raise ValueError(kind)

def deep(depth):
    return deep(depth + 1)
"""


def module(folder: str = "/srv/release-1/shop/", lines: str = "") -> Any:
    found = types.ModuleType("shop.orders")
    exec(compile(CODE.format(lines=lines), f"{folder}orders.py", "exec"), found.__dict__)  # noqa: S102 - the code above
    return found


def of(call: Callable[..., object], *arguments: object, task: str = "shop.tasks.ship") -> str:
    with pytest.raises(BaseException) as caught:  # noqa: PT011 - any error
        call(*arguments)
    caught.value.__traceback__ = caught.tb.tb_next  # without the frame of the test
    linecache.checkcache()
    return fingerprint(caught.value, task)


BASE = of(module().broken, "nothing")


@pytest.mark.parametrize(
    "same",
    [
        of(module().broken, ValueError("another message")),
        of(module(folder="/srv/release-2/shop/").broken, "nothing"),
        of(module(folder="/venv/lib/python3.13/site-packages/shop/").broken, "nothing"),
        of(module(lines="\n\n# more lines").broken, "nothing"),
        of(module().caller, "nothing"),
        of(module().broken, "nothing", task="shop.tasks.another"),
    ],
    ids=["message", "release", "installed", "lines", "caller", "task"],
)
def test_the_same_error_at_the_same_place(same: str) -> None:
    assert same == BASE
    assert len(same) == 40


@pytest.mark.parametrize(
    "other",
    [
        of(module().broken, KeyError("another class")),
        of(module().other, "another function"),
        of(module().broken, "cause"),
    ],
    ids=["class", "function", "cause"],
)
def test_another_error_or_another_place(other: str) -> None:
    assert other != BASE


def test_the_place_of_an_error_in_a_library_is_its_caller() -> None:
    assert of(module().broken, "library") == of(module(lines="\n").caller, "library")
    assert of(module().broken, "library") != of(module().broken, "nothing")


def test_errors_that_may_strike_anywhere_have_only_a_class_and_a_task() -> None:
    timeout = TaskTimeout("after 3 s")
    assert of(module().broken, timeout, task="a.b") == fingerprint(TaskTimeout("after 5 s"), "a.b")
    assert fingerprint(timeout, "a.b") != fingerprint(timeout, "a.c")
    assert of(module().deep, 0) == fingerprint(RecursionError(), "shop.tasks.ship")
    assert fingerprint(ValueError(), "a.b") != fingerprint(ValueError(), "a.c"), "never raised"


def test_a_circle_of_causes_ends() -> None:
    error = ValueError("circle")
    error.__cause__ = error
    assert of(module().broken, error) == of(module().broken, error)
