"""Format long texts of a job: its call in one line, JSON values, and names that may break between words."""

from __future__ import annotations

import json
import re
from typing import Any

from django.utils.html import escape, format_html
from django.utils.safestring import SafeString, mark_safe
from django.utils.text import Truncator
from django.utils.translation import gettext as _

from ... import conf
from ...redaction import redact_call
from .. import display
from .cut_json import load_cut

__all__ = ["MOST_OF_CALL", "breakable", "call", "json_value"]

#: How many characters of the arguments the list reads.
MOST_OF_CALL = 200
_SHOWN_OF_CALL = 80
_ONE_LINE = 100
_FOLDED = 2_000

_BREAKS = re.compile(r"(?<=[._/:\-])(?=\w)|(?<=[a-z0-9])(?=[A-Z])")


def breakable(name: str) -> SafeString:
    """Mark the places between the words of a name such as ``shop.errors.GatewayDown`` where a browser may
    break the line, so that it does not break a word.
    """
    return mark_safe("<wbr>".join(escape(part) for part in _BREAKS.split(name)))  # noqa: S308 - escaped


def call(args: str, kwargs: str, task_path: str) -> str:
    """Format the arguments as in a call, redacted and shortened. Both are JSON, cut after MOST_OF_CALL
    characters. Patterns and callables must see whole values, so what was cut is not shown if there are any.
    """
    positional, few = load_cut(args)
    named, fewer = load_cut(kwargs)
    if (few or fewer) and not conf.current().redact.are_names:
        return "…"
    positional, named = redact_call(positional or [], named or {}, task_path)
    parts = [*map(_compact, positional), *(["…"] if few else [])]
    parts += [f"{name}={_compact(value)}" for name, value in named.items()]
    return Truncator(", ".join([*parts, *(["…"] if fewer else [])])).chars(_SHOWN_OF_CALL)


def json_value(value: Any) -> str:
    """Format a JSON value: in the line if it is short, as an indented block, or as one that is folded. A
    script adds a button that copies it.
    """
    text = _compact(value)
    if len(text) <= _ONE_LINE:
        return format_html('<code class="pgqueue-value" data-pgqueue-json>{}</code>', text)
    block = display.json_block(value)
    if len(text) <= _FOLDED:
        return block
    size = _("%(count)s characters") % {"count": display.number(len(text))}
    beginning = Truncator(text).chars(_SHOWN_OF_CALL)
    summary = format_html('<code class="pgqueue-value">{}</code> {}', beginning, size)
    return format_html('<details class="pgqueue-long"><summary>{}</summary>{}</details>', summary, block)


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
