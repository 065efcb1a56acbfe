from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import asynccontextmanager, contextmanager
from functools import wraps
from typing import Any

import pytest
from django.db import transaction
from hypothesis import given, settings, strategies as st

from django_pgqueue import task
from django_pgqueue.tasks import signatures
from django_pgqueue.tasks.signatures import _problem, check_call

KINDS = ("", "=None")
NAMES = ("a", "b", "c", "d", "e", "f", "other")


@st.composite
def functions(draw: Callable[..., Any]) -> Any:
    """A function with up to two parameters of each kind, with defaults and without."""
    names = iter(NAMES)
    counts = [draw(st.integers(0, 2)) for _ in range(3)]
    required = draw(st.integers(0, counts[0] + counts[1]))
    positional = [next(names) + KINDS[at >= required] for at in range(counts[0] + counts[1])]
    keywords = [next(names) + draw(st.sampled_from(KINDS)) for _ in range(counts[2])]
    parts = [*positional[: counts[0]], *(["/"] if counts[0] else []), *positional[counts[0] :]]
    any_number = draw(st.booleans())
    parts += ["*more"] if any_number else ["*"] if keywords else []
    parts += keywords + (["**rest"] if draw(st.booleans()) else [])
    scope: dict[str, Any] = {}
    exec(f"def function({', '.join(parts)}): ...", scope)  # noqa: S102
    return scope["function"]


def accepts(call: Callable[..., Any], *args: Any, **kwargs: Any) -> bool:
    try:
        call(*args, **kwargs)
    except TypeError:
        return False
    return True


@given(functions(), st.lists(st.just(1), max_size=6), st.sets(st.sampled_from(NAMES)), st.booleans())
@settings(max_examples=200, deadline=None)
def test_the_check_and_python_agree(
    function: Any, args: list[int], names: set[str], takes_context: bool
) -> None:
    given = [None, *args] if takes_context else args
    right = accepts(function, *given, **dict.fromkeys(names, 1))
    assert (_problem(function, len(given), tuple(names)) == "") == right


@task
def anything(first: int, /, second: int = 0, **rest: int) -> None: ...


def test_keywords_with_the_name_of_a_positional_parameter() -> None:
    """Python puts them into ``**rest``."""
    check_call(anything, [1], {"first": 2, "third": 3})
    with pytest.raises(TypeError, match=r"anything\(\) missing a required argument: 'first'"):
        check_call(anything, [], {"first": 2})


@task
def order(number: int, /, note: str = "", *, urgent: bool, color: str = "") -> None: ...


@task(takes_context=True)
def in_context(context: Any, number: int) -> None: ...


@pytest.mark.parametrize(("called", "args", "kwargs", "words"), [
    (order, (), {"urgent": True}, "order() missing a required argument: 'number'"),
    (order, (1, "", 3), {"urgent": True}, "order(): too many positional arguments"),
    (order, (1, ""), {"note": "", "urgent": True}, "order(): multiple values for argument 'note'"),
    (order, (1,), {"urgent": True, "x": 1}, "order() got an unexpected keyword argument 'x'"),
    # The rest of these two messages depends on the version of Python.
    (order, (), {"number": 1, "urgent": True}, "order()"),
    (order, (1,), {"note": ""}, "order() missing a required"),
    (in_context, (), {}, "in_context() missing a required argument: 'number'"),
    (in_context, (None, 1), {}, "in_context(): too many positional arguments"),
    (in_context, (1,), {"context": None}, "in_context(): multiple values for argument 'context'"),
])  # fmt: skip
def test_the_words(called: Any, args: Any, kwargs: Any, words: str) -> None:
    with pytest.raises(TypeError) as caught:
        check_call(called, args, kwargs)
    assert type(caught.value) is TypeError
    assert str(caught.value).startswith(f"tests.tasks.test_signatures.{words}")


def test_the_context_is_not_among_the_arguments() -> None:
    check_call(in_context, [1], {})
    check_call(in_context, [], {"number": 1})


def test_what_bind_overlooks_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inspect.Signature, "bind", lambda *args, **kwargs: None)
    with pytest.raises(TypeError, match=r"order\(\) got some positional-only arguments passed as keyword"):
        check_call(order, [], {"number": 1, "urgent": True})


def injects(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def inner(*args: Any, **kwargs: Any) -> Any:
        return function("client", *args, **kwargs)

    return inner


@contextmanager
def surrounding() -> Any:
    yield


@asynccontextmanager
async def asurrounding() -> Any:
    yield


@task
@injects
def fetch(client: str, url: str) -> None: ...


@task
@transaction.atomic
@surrounding()
def wrapped(number: int) -> None: ...


@task
@asurrounding()
async def awrapped(number: int) -> None: ...


def test_a_decorator_that_passes_arguments_of_its_own_is_let_through() -> None:
    check_call(fetch, ["https://example.com"], {})


@pytest.mark.parametrize("called", [wrapped, awrapped])
def test_what_contextlib_wraps_counts_itself(called: Any) -> None:
    check_call(called, [1], {})
    with pytest.raises(TypeError, match=r"wrapped\(\) missing a required argument: 'number'"):
        check_call(called, [], {})


def declared(number: int) -> None: ...


def test_a_wrapper_may_say_how_it_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    function = injects(declared)
    function.__signature__ = inspect.Signature()  # type: ignore[attr-defined]
    with pytest.raises(TypeError, match="too many positional arguments"):
        check_call(task(function), [1], {})


def test_the_signature_is_read_once_for_a_task_and_its_variants(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[Any] = []
    signature_of = signatures._signature

    def reading(function: Any) -> inspect.Signature:
        read.append(function)
        return signature_of(function)

    monkeypatch.setattr(signatures, "_signature", reading)
    made = task(injects(declared))
    for variant in (made, made.using(priority=3), made.using(queue_name="slow")):
        check_call(variant, [1], {})
    assert len(read) == 1
