"""Format long texts of a job: its call in one line, JSON values, and names that may break between words."""

from __future__ import annotations

import json
import re
from typing import Any

from django.utils.html import escape, format_html
from django.utils.safestring import SafeString, mark_safe
from django.utils.text import Truncator

from . import display

__all__ = ["MOST_OF_CALL", "breakable", "call", "json_value"]

#: How many characters of the arguments the list reads.
MOST_OF_CALL = 200
_SHOWN_OF_CALL = 80
_ONE_LINE = 100

_BREAKS = re.compile(r"(?<=[._/:\-])(?=\w)|(?<=[a-z0-9])(?=[A-Z])")


def breakable(name: str) -> SafeString:
    """Mark the places between the words of a name such as ``shop.errors.GatewayDown`` where a browser may
    break the line, so that it does not break a word.
    """
    return mark_safe("<wbr>".join(escape(part) for part in _BREAKS.split(name)))  # noqa: S308 - escaped


def call(args: str, kwargs: str) -> str:
    """Format the arguments as in a call, shortened. Both are JSON, cut after MOST_OF_CALL characters."""
    positional = _load(args)
    named = _load(kwargs)
    parts = [_inner(args)] if positional is None else [_compact(value) for value in positional]
    if named is None:
        parts.append(_inner(kwargs))
    else:
        parts += [f"{name}={_compact(value)}" for name, value in named.items()]
    return Truncator(", ".join(parts)).chars(_SHOWN_OF_CALL)


def json_value(value: Any) -> str:
    """Format a JSON value: in the line if it is short, otherwise as an indented block."""
    text = _compact(value)
    if len(text) <= _ONE_LINE:
        return format_html('<code class="pgqueue-value">{}</code>', text)
    return display.json_block(value)


def _load(text: str) -> Any:
    """Return the value; None if the text was cut."""
    try:
        return json.loads(text)
    except ValueError:
        return None


def _inner(text: str) -> str:
    """Return JSON that was cut, without its opening bracket."""
    return text[1:] + "…"


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
