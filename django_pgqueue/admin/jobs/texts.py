"""Format long texts of a job: its call in one line, JSON values, and names that may break between words."""

from __future__ import annotations

import json
import re
from typing import Any

from django.db.models import OuterRef, QuerySet, Subquery
from django.db.models.functions import Now
from django.utils.html import escape, format_html
from django.utils.safestring import SafeString, mark_safe
from django.utils.text import Truncator
from django.utils.translation import gettext as _

from ... import conf, formatting
from ...models import Worker
from ...models.job import Status
from ...monitoring.workers import is_dead, with_age
from ...redaction import redact_call
from .. import display

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
    size = _("%(count)s characters") % {"count": formatting.number(len(text))}
    beginning = Truncator(text).chars(_SHOWN_OF_CALL)
    summary = format_html('<code class="pgqueue-value">{}</code> {}', beginning, size)
    return format_html('<details class="pgqueue-long"><summary>{}</summary>{}</details>', summary, block)


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


# ----------------------------------------------------------------------------
# Read the beginning of JSON that was cut off: the list of jobs reads only so much of long arguments.

_TOKENS = re.compile(r'"(?:[^"\\]|\\.)*(?:"|\\?\Z)|[\[\]{},:]')
_CLOSED_BY = {"[": "]", "{": "}"}


def load_cut(text: str) -> tuple[Any, bool]:
    """Return a JSON list or object, and whether it was cut. Then it has only the values that are whole, and
    the beginning of a string that is an element of a list, or the value of a key.
    """
    try:
        return json.loads(text), False
    except ValueError:
        pass
    open_brackets: list[str] = []
    end, closing = 0, ""
    place = 0
    for token in _TOKENS.finditer(text):
        sign = token[0]
        if sign.startswith('"') and (len(sign) == 1 or not sign.endswith('"') or token.end() == len(text)):
            break  # the string in which the text was cut, or a key or value that may continue
        place = token.end()
        if sign in _CLOSED_BY:
            open_brackets.append(_CLOSED_BY[sign])
        elif sign in ("]", "}"):
            open_brackets.pop()
        elif sign != ",":
            continue
        end = token.start() if sign == "," else place
        closing = "".join(reversed(open_brackets))
    whole = text[:end] + closing
    return _with_beginning(text[:place], text[place:], open_brackets, whole), True


def _with_beginning(before: str, rest: str, open_brackets: list[str], whole: str) -> Any:
    """Return the value with the string in which the text was cut, if that can be told."""
    rest = rest.lstrip()
    is_value = before.rstrip().endswith((":", "[")) or (before.endswith(",") and open_brackets[-1:] == ["]"])
    if rest.startswith('"') and is_value:
        # The last character may be half of an escape.
        beginning = re.sub(r"\\(u[0-9a-fA-F]{0,3})?$", "", rest)
        try:
            return json.loads(f'{before} {beginning}…"' + "".join(reversed(open_brackets)))
        except ValueError:
            pass
    try:
        return json.loads(whole)
    except ValueError:
        return None


# ----------------------------------------------------------------------------
# The workers of jobs, by name, and whether a running job has lost its worker.


def with_clock(jobs: QuerySet[Any]) -> QuerySet[Any]:
    """Annotate jobs with the time ``now`` on the clock of the database, and with the ``silence`` of the
    worker: the time since its last heartbeat, or None if the worker no longer exists.
    """
    worker = with_age(Worker.objects.filter(pk=OuterRef("worker")))
    timed: QuerySet[Any] = jobs.annotate(now=Now(), silence=Subquery(worker.values("age")))
    return timed


def has_lost_its_worker(job: Any) -> bool:
    """Return whether the worker of a running job ``with_clock`` no longer exists, or is silent for over
    LEASE.
    """
    if job.status != Status.RUNNING:
        return False
    return job.silence is None or is_dead(job.silence)


def short_name(worker: int) -> str:
    """Return a short name for a worker that no longer exists, so that two of them can be distinguished."""
    return f"{worker:x}".removeprefix("-")[:6]
