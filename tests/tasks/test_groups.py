"""The group of a call: how a task names it, and what is refused."""

from __future__ import annotations

import enum
import pickle
from collections.abc import Callable
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from django_pgqueue import task
from django_pgqueue.compat import InvalidTask
from django_pgqueue.exceptions import InvalidKey
from django_pgqueue.tasks.keys import group_key
from tests.app import group_tasks as tasks


class Plan(enum.StrEnum):
    FREE = "free"


@pytest.mark.parametrize(
    ("value", "key"),
    [
        ("acme", "acme"), (7, "7"), (Decimal("1.50"), "1.50"), (None, None), (Plan.FREE, "free"),
        (UUID(int=5), "00000000-0000-0000-0000-000000000005"),
    ],
)  # fmt: skip
def test_the_group_is_the_value_of_the_argument(value: Any, key: str | None) -> None:
    assert group_key(tasks.serve, (value, 1), {}) == key
    assert group_key(tasks.serve, (), {"tenant": value, "number": 1}) == key
    assert group_key(tasks.by_domain, (f"ann@{value}",), {}) == str(value)


def test_the_call_can_name_it_whatever_the_task_does() -> None:
    assert group_key(tasks.serve.using(group_key="vip"), ("acme", 1), {}) == "vip"
    assert group_key(tasks.plain.using(group_key="vip"), (1,), {}) == "vip"
    assert group_key(tasks.plain, (1,), {}) is None
    assert pickle.loads(pickle.dumps(tasks.serve.using(group_key="vip"))).group_key == "vip"  # noqa: S301


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("", "must be a string that is not empty"),
        ("x" * 201, "has 201 characters, but the limit is 200"),
        ("a\0b", "has a character that cannot be stored"),
        (True, "must be a string, a number, a date or a UUID, not True"),
        ([1], r"must be a string, a number, a date or a UUID, not \[1\]"),
    ],
)
def test_a_value_that_cannot_be_a_group_is_refused(value: Any, message: str) -> None:
    with pytest.raises(InvalidKey, match=f"group of tests.app.group_tasks.serve {message}"):
        group_key(tasks.serve, (value, 1), {})


def test_a_function_that_raises_is_named() -> None:
    with pytest.raises(InvalidKey, match=r"callable for the group of .*by_domain raised IndexError"):
        group_key(tasks.by_domain, ("nobody",), {})


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: task(group="nobody")(tasks.serve.func),
            "serve.. has no argument 'nobody'",
        ),
        (
            lambda: task(group=5)(tasks.serve.func),  # type: ignore[call-overload]
            "group must be the name of an argument, a tuple of names, or a callable",
        ),
        (
            lambda: task(group="")(tasks.serve.func),
            "group must be the name of an argument, a tuple of names, or a callable",
        ),
        (lambda: tasks.serve.using(group_key=""), "group_key must be a string that is not empty"),
        (lambda: tasks.serve.using(group_key=7), "group_key must be a string that is not empty"),  # type: ignore[arg-type]
        (lambda: tasks.serve.using(group_key="x" * 201), "group_key has 201 characters"),
    ],
)
def test_bad_options_are_refused_where_they_are_written(make: Callable[[], object], message: str) -> None:
    with pytest.raises(InvalidTask, match=message):
        make()
