from __future__ import annotations

import pickle
from collections.abc import Callable
from datetime import date
from enum import StrEnum
from typing import Any
from uuid import UUID

import pytest

from django_pgqueue import Concurrency, RateLimit, task
from django_pgqueue.compat import InvalidTask
from django_pgqueue.exceptions import InvalidKey
from django_pgqueue.tasks.keys import limit_key
from tests.app import limit_tasks as tasks

PATH = "tests.app.limit_tasks."


class Region(StrEnum):
    NORTH = "n"


@pytest.mark.parametrize(
    ("limit", "words"),
    [
        (0, "at least 1. It is 0. To let no job start, pause the task"),
        (-1, "at least 1. It is -1"),
        (True, "whole number"),
        (1.5, "whole number"),
        ("3", "whole number"),
        (2**31, "whole number"),
    ],
)
def test_a_limit_that_makes_no_sense_is_refused_when_it_is_declared(limit: Any, words: str) -> None:
    with pytest.raises(InvalidTask, match=words):
        Concurrency(limit)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"key": ""}, "name of an argument, a tuple of names, or a callable"),
        ({"key": 7}, "name of an argument, a tuple of names, or a callable"),
        ({"on_full": "fail"}, "'wait', 'cancel_new' or 'cancel_old'"),
        ({"name": "a/b"}, "must not contain a slash"),
        ({"name": ""}, "1 to 200 characters"),
        ({"name": "x" * 201}, "1 to 200 characters"),
        ({"name": "*"}, "limits of the installation and of queues"),
        ({"name": "queue:mail"}, "limits of the installation and of queues"),
    ],
)
def test_an_option_that_makes_no_sense_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidTask, match=words):
        Concurrency(1, **options)


def test_a_key_must_name_an_argument_of_the_function() -> None:
    with pytest.raises(InvalidTask, match=r"has no argument 'order', .* Its arguments are: order_id, name"):
        task(concurrency=Concurrency(1, key="order"))(tasks.ship.func)
    with pytest.raises(InvalidTask, match=r"a whole number or a Concurrency\(\.\.\.\)"):
        task(concurrency="order_id")(tasks.ship.func)  # type: ignore[call-overload]
    assert tasks.two.concurrency == Concurrency(2)


def keyed(key: Any) -> Any:
    return task(concurrency=Concurrency(1, key=key))(tasks.ship.func)


@pytest.mark.parametrize(
    ("call", "key"),
    [
        (lambda: (tasks.two, ("a",), {}), "two"),
        (lambda: (tasks.ship, (7,), {}), "ship/7"),
        (lambda: (tasks.ship, (), {"order_id": 7}), "ship/7"),
        (lambda: (tasks.ship, ("a/b",), {}), "ship/a/b"),
        (lambda: (tasks.ship, (UUID(int=1),), {}), f"ship/{UUID(int=1)}"),
        (lambda: (tasks.ship, (date(2026, 1, 2),), {}), "ship/2026-01-02"),
        (lambda: (tasks.ship, (Region.NORTH,), {}), "ship/n"),
        (lambda: (tasks.ship, (None,), {}), None),
        (lambda: (tasks.report, (), {}), "report/all"),
        (lambda: (tasks.report, (), {"region": None}), None),
        (lambda: (keyed(("name", "order_id")), (7,), {"name": "é"}), 'ship/["é",7]'),
        (lambda: (keyed(("order_id", "name")), (UUID(int=1),), {}), f'ship/["{UUID(int=1)}",""]'),
        (lambda: (keyed(()), (7,), {}), "ship"),
        (lambda: (tasks.ship.using(limit_key="x"), (7,), {}), "ship/x"),
        (lambda: (tasks.two.using(limit_key="x"), ("a",), {}), "two/x"),
    ],
)
def test_the_key_of_a_call(call: Callable[[], tuple[Any, Any, Any]], key: str | None) -> None:
    assert limit_key(*call()) == (None if key is None else PATH + key)


def test_the_value_of_a_key_has_no_name_of_a_limit() -> None:
    """The key of a job is not the value: it would be under its name twice."""
    with pytest.raises(InvalidTask, match=r"write '7' in place of 'tests\.app\.limit_tasks\.ship/7'"):
        tasks.ship.using(limit_key=f"{PATH}ship/7")


def test_tasks_share_a_key_by_its_name() -> None:
    """Also if their arguments have other names."""
    one = task(rate_limit=RateLimit(1, per=60, key="order_id", name="orders"))(tasks.ship.func)
    other = task(rate_limit=RateLimit(1, per=60.0, key="name", name="orders"))(tasks.two.func)
    assert limit_key(one, (7,), {}) == limit_key(other, (7,), {}) == "orders/7"


def test_the_key_of_a_callable_is_under_the_name_of_the_limit() -> None:
    assert limit_key(tasks.sync, ("acme.shop",), {}) == "tenant/acme"


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("x" * 200, "the limit is 200: tests.app.limit_tasks.ship/xxx"),
        ([1], "must be a string, a number, a date or a UUID, not \\[1\\]"),
        (True, "must be a string, a number"),
        ("a\0b", "character that cannot be stored"),
        ("\ud800", "character that cannot be stored"),
    ],
)
def test_a_key_that_cannot_be_stored_is_refused(value: Any, words: str) -> None:
    with pytest.raises(InvalidKey, match=words):
        limit_key(tasks.ship, (value,), {})


def test_a_callable_that_raises_is_named() -> None:
    with pytest.raises(
        InvalidKey, match=r"callable for the limit key of .*sync raised AttributeError: 'int'"
    ):
        limit_key(tasks.sync, (7,), {})


def test_a_callable_must_not_be_async() -> None:
    async def key(name: str) -> str:
        return name

    declared = task(concurrency=Concurrency(1, key=key))(tasks.two.func)
    with pytest.raises(InvalidKey, match="must not be async"):
        limit_key(declared, ("a",), {})


def test_the_key_of_a_call_is_checked_at_once() -> None:
    with pytest.raises(InvalidTask, match="limit_key must be a string"):
        tasks.two.using(limit_key=7)  # type: ignore[arg-type]
    with pytest.raises(InvalidTask, match="has 201 characters"):
        tasks.two.using(limit_key="x" * 201)


def test_a_task_with_a_key_can_be_pickled() -> None:
    copy = pickle.loads(pickle.dumps(tasks.ship.using(limit_key="x")))  # noqa: S301
    assert (copy.limit_key, copy.concurrency) == ("x", tasks.ship.concurrency)
