from __future__ import annotations

import datetime
import decimal
import enum
import json
import pathlib
import uuid
from collections import OrderedDict, UserDict, namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy
from hypothesis import given, settings, strategies as st

from django_pgqueue.encoding import encode_arguments, encode_metadata, encode_result, whole_number
from django_pgqueue.exceptions import InvalidJSON, PgQueueError
from tests.support.wording import refusals

MIB = 2**20
Pair = namedtuple("Pair", "left right")


class Color(enum.Enum):
    RED = "red"


class Size(enum.StrEnum):
    SMALL = "small"


@dataclass
class Point:
    x: int


def loop() -> list[Any]:
    itself: list[Any] = []
    itself.append(itself)
    return itself


def deep(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


def test_arguments_become_json(wording: Any) -> None:
    values: list[Any] = [
        [], (1, "a", None, True, 2.5), [1, (2, 3)], {"a": {"b": []}}, "é😀", Size.SMALL, SafeString("s"),
        Pair(1, 2), OrderedDict(a=1), "{curly}", "back\\u0000slash",
    ]  # fmt: skip
    texts = [encode_arguments((value,), {"key": value}, MIB) for value in values]
    assert encode_arguments((), {}, MIB) == ("[]", "{}")
    assert "\n".join(f"{args} {kwargs}" for args, kwargs in texts) == wording


NO_JSON: list[Any] = [
    datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC), datetime.date(2026, 1, 1), datetime.time(1),
    datetime.timedelta(1), decimal.Decimal("1.5"), uuid.UUID(int=1), pathlib.Path("/"), gettext_lazy("yes"),
    b"x", {1, 2}, Color.RED, Point(1), 1j, UserDict(), range(3), object(), Point, float("nan"), float("inf"),
    "a\0b", "\ud800", 10**5000, {"when": datetime.date(2026, 1, 1)}, {"a b": [0, {"c": b"x"}]},
    {"ok": 1, "deep": [[], [float("nan")]]}, {5: "x"}, {None: "x"}, {"a": {True: 1}}, {"n\0": 1},
    {"\udfff": 1}, [{"x": 1}, "\0"],
]  # fmt: skip


@pytest.mark.promise("arguments-are-json")
def test_what_is_not_json_is_refused_with_its_path_and_a_hint(wording: Any) -> None:
    calls: dict[str, Callable[[Any], object]] = {
        "args[1]": lambda value: encode_arguments((0, value), {}, MIB),
        "kwargs.order": lambda value: encode_arguments((), {"order": value}, MIB),
        "metadata.order": lambda value: encode_metadata({"order": value}),
        "result": lambda value: encode_result(value, MIB),
    }
    for where, call in calls.items():
        said = refusals(InvalidJSON, *(partial(call, value) for value in NO_JSON))
        assert said.replace(where, "<place>") == wording(name="each place")


@pytest.mark.django_db
def test_models_and_querysets_are_refused_with_what_to_pass_instead() -> None:
    with pytest.raises(InvalidJSON, match=r"args\[0\] is of type User,.* primary key"):
        encode_arguments((User(pk=1),), {}, MIB)
    with pytest.raises(InvalidJSON, match=r"args\[0\] is of type QuerySet,.* list of primary keys"):
        encode_arguments((User.objects.all(),), {}, MIB)


@pytest.mark.parametrize(
    "value", [loop(), deep(5000), deep(100_000), {"a": deep(300)}], ids=["loop", "5", "100", "d"]
)
def test_what_is_too_deep_is_refused(value: object) -> None:
    with pytest.raises(InvalidJSON, match="levels deep") as caught:
        encode_arguments((value,), {}, MIB)
    assert len(str(caught.value)) < 300


def test_the_error_is_what_callers_of_json_expect() -> None:
    with pytest.raises(TypeError):
        encode_result(object(), MIB)
    with pytest.raises(ValueError, match="nan"):
        encode_result(float("nan"), MIB)
    assert issubclass(InvalidJSON, PgQueueError)


@pytest.mark.promise("arguments-are-small")
def test_the_limit_counts_the_bytes_of_both() -> None:
    args, kwargs = ("é" * 10,), {"a": "b"}
    size = sum(len(text.encode()) for text in encode_arguments(args, kwargs, MIB))
    assert encode_arguments(args, kwargs, size)
    with pytest.raises(InvalidJSON, match=f"{size} bytes .* MAX_JSON_BYTES"):
        encode_arguments(args, kwargs, size - 1)


def test_a_result_has_a_limit_too_and_none_is_no_result() -> None:
    assert (encode_result(None, 10), encode_result(False, 10), encode_result([], 10)) == (None, "false", "[]")
    assert encode_result("x" * 98, 100) == '"' + "x" * 98 + '"'
    with pytest.raises(InvalidJSON, match="101 bytes"):
        encode_result("x" * 99, 100)


@pytest.mark.parametrize(("text", "number"), [
    ("0", 0), ("007", 7), ("9223372036854775807", 2**63 - 1), ("9223372036854775808", None), ("-1", None),
    ("", None), ("-", None), ("--1", None), ("+1", None), (" 1", None), ("1_000", None), ("²", None),
    ("٣", None), ("9" * 5_000, None),
])  # fmt: skip
def test_a_number_that_comes_from_outside(text: str, number: int | None) -> None:
    assert whole_number(text) == number
    assert whole_number("-5", -5) == -5
    assert whole_number("-6", -5) is None


texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
numbers = st.integers(-(10**30), 10**30) | st.floats(-1e15, 1e15, allow_subnormal=False)
values = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)


@pytest.mark.django_db
@given(values)
@settings(max_examples=60, deadline=None)
@pytest.mark.promise("arguments-are-json")
def test_what_is_accepted_comes_back_from_postgresql_unchanged(value: object) -> None:
    text, _ = encode_arguments((value,), {}, MIB)
    with connection.cursor() as cursor:
        cursor.execute("SELECT %s::jsonb::text", [text])
        (stored,) = cursor.fetchone()
    assert json.loads(stored) == [value]
