"""Encode arguments, metadata and results as JSON text that jsonb stores and returns unchanged.

The encoder of the standard library does the work. It accepts values that jsonb refuses or that would come
back changed (keys that are not strings, NUL, lone surrogates). These are searched in its output first,
which is cheap, and only then in the values. An error names the path of the value and what to pass instead.
"""

from __future__ import annotations

import datetime
import decimal
import enum
import json
import math
import pathlib
import sys
import uuid
from collections.abc import Iterator, Mapping, Sequence, Set as AbstractSet
from dataclasses import is_dataclass
from typing import Any

from django.db.models import Model, QuerySet
from django.utils.functional import Promise

from .exceptions import InvalidJSON

_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
#: The bytes of a context. The database accepts twice as many, because its own text has spaces.
MAX_CONTEXT = 8192
_MAX_DEPTH = 200  # far below the limits of the parsers of Python and PostgreSQL
_MAX_BITS = 14_285  # larger numbers have more than the 4,300 digits that Python converts to a string


def encode_arguments(args: Sequence[Any], kwargs: Mapping[str, Any], limit: int) -> tuple[str, str]:
    """Return both as JSON texts of at most `limit` bytes together. Raise InvalidJSON, with path and hint."""
    first = _text(args, "args") if args else "[]"
    second = _text(kwargs, "kwargs") if kwargs else "{}"
    hint = "Store the data in a row or a file and pass its key."
    check_size(_size(first) + _size(second), limit, "arguments take", hint)
    return first, second


def encode_metadata(metadata: Mapping[str, Any]) -> str:
    """Return `metadata` as JSON text. Raise InvalidJSON if that is not possible."""
    return _text(metadata, "metadata") if metadata else "{}"


def encode_context(context: Mapping[str, Any]) -> str:
    """Return the context of a job as JSON text of at most MAX_CONTEXT bytes. Raise InvalidJSON."""
    text = _text(context, "context")
    if _size(text) > MAX_CONTEXT:
        sizes = {path: _size(_encode(value)) for path, value in context.get("vars", {}).items()}
        largest = max(sizes, key=lambda path: sizes[path], default="")
        raise InvalidJSON(
            f"The context takes {_size(text):,} bytes as JSON, more than {MAX_CONTEXT:,}. The largest "
            f"context variable is {largest}. Let it hold a key, and look the value up in the task."
        )
    return text


def encode_result(value: Any, limit: int, name: str = "result") -> str | None:
    """Return a result as JSON text of at most `limit` bytes; None for None. Raise InvalidJSON with `name`."""
    if value is None:
        return None
    text = _text(value, name)
    check_size(_size(text), limit, f"{name} takes", "Store it in a row or a file and return its key.")
    return text


def check_size(size: int, limit: int, what: str, hint: str) -> None:
    """Raise InvalidJSON if JSON of this size, in bytes, is larger than MAX_JSON_BYTES."""
    if size > limit:
        raise InvalidJSON(f"The {what} {size:,} bytes as JSON, more than MAX_JSON_BYTES ({limit:,}). {hint}")


def _text(value: Any, name: str) -> str:
    try:
        text = _encode(value)
    except (TypeError, ValueError, RecursionError) as error:
        unknown = f"{name} cannot be written as JSON: {error}"
        raise InvalidJSON(next(_complaints(value, name, 0), unknown)) from None
    # A brace means a dict (or a string with a brace), whose keys may be anything. "\u0000" may be a NUL.
    if "{" in text or "\\u0000" in text or "[[[[[[[[" in text or not _is_utf8(text):
        for complaint in _complaints(value, name, 0):
            raise InvalidJSON(complaint)
    return text


def _is_utf8(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:  # a lone surrogate
        return False
    return True


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


def _complaints(value: Any, path: str, depth: int) -> Iterator[str]:
    """Yield what is wrong with `value`, which is at `path`, and with everything in it."""
    if value is None or isinstance(value, (bool, str, int, float)):
        if complaint := _scalar(value):
            yield f"{path} {complaint}"
    elif depth == _MAX_DEPTH:
        yield f"{path[:40]}... is nested more than {_MAX_DEPTH} levels deep, or contains itself. Flatten it."
    elif isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                kind = type(key).__qualname__
                yield f"{path} has the key {key!r} of type {kind}, but JSON keys are strings. Pass str(key)."
            elif complaint := _scalar(key):
                yield f"{path} has the key {key!r}, which {complaint}"
            else:
                member = f"{path}.{key}" if key.isidentifier() else f"{path}[{key!r}]"
                yield from _complaints(item, member, depth + 1)
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            yield from _complaints(item, f"{path}[{index}]", depth + 1)
    else:
        kind = type(value).__qualname__
        yield f"Unsupported type: {path} is of type {kind}, which JSON lacks. {_instead(value)}"


def _scalar(value: Any) -> str:
    if isinstance(value, str):
        if "\0" in value:
            return "contains a NUL character, which PostgreSQL cannot store. Pass value.replace('\\0', '')."
        if not value.isascii() and not _is_utf8(value):
            return (
                "contains a lone surrogate, which UTF-8 cannot encode. "
                "Pass value.encode('utf-8', 'replace').decode()."
            )
    elif isinstance(value, float) and not math.isfinite(value):
        return f"is {value!r}, which JSON lacks. Pass None or a string."
    elif isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > _MAX_BITS:
        return f"is an integer of {value.bit_length():,} bits, which is too large. Pass hex(value)."
    return ""


_HINTS: tuple[tuple[type | tuple[type, ...], str], ...] = (
    ((datetime.datetime, datetime.date, datetime.time), "Pass value.isoformat() and parse it in the task."),
    (datetime.timedelta, "Pass value.total_seconds()."),
    ((decimal.Decimal, uuid.UUID, pathlib.PurePath, Promise), "Pass str(value)."),
    ((bytes, bytearray, memoryview), "Pass value.decode(), or base64 if it is not text."),
    (enum.Enum, "Pass value.value."),
    (Model, "Pass its primary key and load it in the task."),
    (QuerySet, "Pass a list of primary keys and load them in the task."),
    (AbstractSet, "Pass sorted(value), or list(value)."),
    (Mapping, "Pass dict(value)."),
    (complex, "Pass [value.real, value.imag]."),
)


def _instead(value: Any) -> str:
    for types, hint in _HINTS:
        if isinstance(value, types):
            return hint
    if is_dataclass(value) and not isinstance(value, type):
        return "Pass dataclasses.asdict(value)."
    if isinstance(value, Iterator) or hasattr(value, "__iter__"):
        return "Pass list(value)."
    return "Pass strings, numbers, booleans, None, lists or dicts, or a key to look the value up by."


# Read what others have stored or sent: by SQL, on a channel, in a pipe, in an address. Calls in Python refuse
# JSON that PostgreSQL stores and Python does not read. It may still come from SQL, or from a worker in
# another language, and then the rest of the row is to be shown.

TOO_DEEP = "<nested too deeply to be shown>"
"""Stands for a value."""
MOST_DIGITS = 4_000
"""Python reads whole numbers with at most 4,300 digits."""
MAX_BIGINT = 2**63 - 1


def load(text: str | bytes) -> Any:
    """Return the value. A text stands for a number that is too long, and for a value that is too deep."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        pass
    try:
        return json.loads(text, parse_int=_whole)
    except RecursionError:
        return TOO_DEEP


def _whole(digits: str) -> int | str:
    return int(digits) if len(digits) <= MOST_DIGITS else f"<a number with {len(digits):,} digits>"


def meanings(text: str) -> list[Any]:
    """Return what a text may mean that a user compares with JSON: a text in quotation marks; else the number,
    true, false or null that it is, and itself, which comes last. Lists and objects are not compared, because
    parts of them may be redacted.
    """
    try:
        found = json.loads(text)
        encode_result(found, sys.maxsize)
    except ValueError:  # also of what PostgreSQL cannot store, and so is nowhere
        return [text]
    if isinstance(found, str):
        return [found]
    return [text] if isinstance(found, (list, dict)) else [found, text]


def whole_number(text: str, least: int = 0, most: int = MAX_BIGINT) -> int | None:
    """Return the number that a text is, or None if it is no whole number between these two.

    ``int()`` raises for a text that ``isdigit()`` accepts, such as "²" or 5,000 digits.
    """
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdecimal() and len(digits) <= len(str(MAX_BIGINT))):
        return None
    number = int(text)
    return number if least <= number <= most else None
