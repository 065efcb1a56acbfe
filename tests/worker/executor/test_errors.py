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


BROKEN, TASK = module().broken, "shop.tasks.ship"
NOTHING = of(BROKEN, "nothing")

SAME = {
    "message": (NOTHING, of(BROKEN, ValueError("another message"))),
    "release": (NOTHING, of(module("/srv/release-2/shop/").broken, "nothing")),
    "installed": (NOTHING, of(module("/venv/lib/python3.13/site-packages/shop/").broken, "nothing")),
    "lines": (NOTHING, of(module(lines="\n\n# more lines").broken, "nothing")),
    "caller": (NOTHING, of(module().caller, "nothing")),
    "task": (NOTHING, of(BROKEN, "nothing", task="shop.tasks.another")),
    # The place of an error in a library is its caller.
    "library": (of(BROKEN, "library"), of(module(lines="\n").caller, "library")),
    # Errors that may strike anywhere have only a class and a task.
    "timeout": (of(BROKEN, TaskTimeout("3 s")), fingerprint(TaskTimeout("5 s"), TASK)),
    "recursion": (of(module().deep, 0), fingerprint(RecursionError(), TASK)),
    "timeout in a group": (of(BROKEN, group(TaskTimeout())), fingerprint(group(TaskTimeout()), TASK)),
    "times in a group": (of(BROKEN, group(ValueError())), of(BROKEN, group(ValueError(), ValueError()))),
}
OTHER = {
    "class": (NOTHING, of(BROKEN, KeyError("another class"))),
    "function": (NOTHING, of(module().other, "another function")),
    "cause": (NOTHING, of(BROKEN, "cause")),
    "library": (NOTHING, of(BROKEN, "library")),
    "timeout of another task": (fingerprint(TaskTimeout(), "a.b"), fingerprint(TaskTimeout(), "a.c")),
    "never raised, of another task": (fingerprint(ValueError(), "a.b"), fingerprint(ValueError(), "a.c")),
    "in a group": (of(BROKEN, group(ValueError())), of(BROKEN, group(KeyError()))),
}


def test_which_failures_have_the_same_fingerprint() -> None:
    assert [name for name, (one, other) in SAME.items() if one != other] == []
    assert [name for name, (one, other) in OTHER.items() if one == other] == []
    assert {len(found) for pair in (*SAME.values(), *OTHER.values()) for found in pair} == {40}
