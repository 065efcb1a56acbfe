"""What is stored about a failed attempt: the exceptions, and the fingerprint that failures share."""

from __future__ import annotations

import json
import linecache
import types
from collections.abc import Callable
from typing import Any

import pytest

from django_pgqueue.exceptions import TaskTimeout
from django_pgqueue.worker.executor.errors import error_entry, fingerprint, step_of


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
    first.__cause__ = first
    assert of(module().broken, first) == of(module().broken, first)


def test_a_class_with_a_long_name_makes_no_long_entry() -> None:
    error = type("E" * 100_000, (Exception,), {})()
    assert len(error_entry(error, worker=1, attempt=1, limit=1_000)) < 2_000


def test_the_step_that_failed_in_a_group_is_known() -> None:
    error = ValueError()
    error._pgqueue_step = "pay"  # type: ignore[attr-defined]
    assert step_of(ExceptionGroup("group", [KeyError(), error])) == "pay"


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


def raised(call: Callable[..., object], *arguments: object) -> Any:
    with pytest.raises(BaseException) as caught:  # noqa: PT011 - any error
        call(*arguments)
    # Without the frame of this function.
    return caught.value.with_traceback(caught.tb.tb_next)


def of(call: Callable[..., object], *arguments: object, task: str = "shop.tasks.ship") -> str:
    linecache.checkcache()
    return fingerprint(raised(call, *arguments), task)


def group(*errors: Exception) -> Any:
    """Return what a function raises in which these were raised."""
    return ExceptionGroup("group", [raised(module().broken, error) for error in errors])


BASE = of(module().broken, "nothing")


@pytest.mark.parametrize(
    ("found", "expected", "is_same"),
    [
        pytest.param(of(module().broken, ValueError("another message")), BASE, True, id="message"),
        pytest.param(of(module("/srv/release-2/shop/").broken, "nothing"), BASE, True, id="release"),
        pytest.param(
            of(module("/venv/lib/python3.13/site-packages/shop/").broken, "nothing"), BASE, True,
            id="installed",
        ),
        pytest.param(of(module(lines="\n\n# more lines").broken, "nothing"), BASE, True, id="lines"),
        pytest.param(of(module().caller, "nothing"), BASE, True, id="caller"),
        pytest.param(of(module().broken, "nothing", task="shop.tasks.another"), BASE, True, id="task"),
        pytest.param(of(module().broken, KeyError("another class")), BASE, False, id="class"),
        pytest.param(of(module().other, "another function"), BASE, False, id="function"),
        pytest.param(of(module().broken, "cause"), BASE, False, id="cause"),
        # The place of an error in a library is its caller.
        pytest.param(
            of(module().broken, "library"), of(module(lines="\n").caller, "library"), True, id="library"
        ),
        pytest.param(of(module().broken, "library"), BASE, False, id="not the caller's own"),
        # Errors that may strike anywhere have only a class and a task.
        pytest.param(
            of(module().broken, TaskTimeout("3 s")), fingerprint(TaskTimeout("5 s"), "shop.tasks.ship"), True,
            id="anywhere",
        ),
        pytest.param(
            fingerprint(TaskTimeout(), "a.b"), fingerprint(TaskTimeout(), "a.c"), False, id="of one task"
        ),
        pytest.param(
            of(module().deep, 0), fingerprint(RecursionError(), "shop.tasks.ship"), True, id="recursion"
        ),
        pytest.param(
            fingerprint(ValueError(), "a.b"), fingerprint(ValueError(), "a.c"), False, id="never raised"
        ),
        # Groups are told apart by what is in them.
        pytest.param(
            of(module().broken, group(ValueError())), of(module().broken, group(ValueError(), ValueError())),
            True, id="as often as it was raised",
        ),
        pytest.param(
            of(module().broken, group(ValueError())), of(module().broken, group(KeyError())), False,
            id="in the group",
        ),
        pytest.param(
            of(module().broken, group(TaskTimeout())),
            fingerprint(ExceptionGroup("group", [TaskTimeout()]), "shop.tasks.ship"), True,
            id="anywhere in the group",
        ),
    ],
)  # fmt: skip
def test_which_failures_have_the_same_fingerprint(found: str, expected: str, is_same: bool) -> None:
    assert (found == expected) is is_same
    assert len(found) == 40
