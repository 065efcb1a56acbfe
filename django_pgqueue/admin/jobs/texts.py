"""Format long texts of a job: its call in one line, JSON values, and names that may break between words; and
a batch, which jobs and batches show.
"""

from __future__ import annotations

import json
import re
from typing import Any

from django.utils.html import escape, format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe
from django.utils.text import Truncator
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, pgettext_lazy

from ... import conf, formatting
from ...models import BatchCounts, JobBatch
from ...redaction import redact_call
from .. import display

#: How many characters of the arguments the list reads.
MOST_OF_CALL = 200
_SHOWN_OF_CALL = 80
_ONE_LINE = 100
_FOLDED = 2_000
MOST_CHARACTERS = 20_000
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
    positional, few = load_cut(args, "]")
    named, fewer = load_cut(kwargs, "}")
    if (few or fewer) and not conf.current().redact.are_names:
        return "…"
    positional, named = redact_call(positional, named, task_path)
    parts = [*map(_compact, positional), *(["…"] if few else [])]
    parts += [f"{name}={_compact(value)}" for name, value in named.items()]
    return Truncator(", ".join([*parts, *(["…"] if fewer else [])])).chars(_SHOWN_OF_CALL)


def json_value(value: Any) -> str:
    """Format a JSON value: in the line if it is short, else as a block, which is folded or cut if it is long.
    A script adds a button that copies it.
    """
    line, text = _compact(value), json.dumps(value, indent=2, ensure_ascii=False)
    if len(line) <= _ONE_LINE:
        return format_html('<code class="pgqueue-value" data-pgqueue-json>{}</code>', line)
    if len(text) > MOST_CHARACTERS:
        left_out = formatting.number(len(text) - MOST_CHARACTERS)
        text = text[:MOST_CHARACTERS] + "\n" + _("… and %(count)s more characters") % {"count": left_out}
    block = format_html('<pre class="pgqueue-block" tabindex="0" data-pgqueue-json>{}</pre>', text)
    if len(line) <= _FOLDED:
        return block
    return format_html(
        '<details class="pgqueue-long"><summary><code class="pgqueue-value">{}</code> {}</summary>'
        "{}</details>",
        Truncator(line).chars(_SHOWN_OF_CALL),
        _("%(count)s characters") % {"count": formatting.number(len(line))},
        block,
    )


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def load_cut(text: str, end: str) -> tuple[Any, bool]:
    """Return a JSON list or object that ends with ``end``, and whether it was cut: then without what follows
    the last value that is whole, or the last string. Brackets are closed two deep.
    """
    try:
        return json.loads(text), False
    except ValueError:
        pass
    ends = (end, "]" + end, "}" + end)
    closing = [f'…"{each}' for each in ends]  # a number in which it was cut would be another number
    while text:
        for each in closing:
            try:
                return json.loads(text + each), True
            except ValueError:
                continue
        text, closing = text.rpartition(",")[0], [*closing, *ends]
    return {"]": [], "}": {}}[end], True


def short_name(worker: int) -> str:
    """Return a short name for a worker that no longer exists, so that two of them can be distinguished."""
    return f"{worker:x}".removeprefix("-")[:6]


_STATES = {"open": pgettext_lazy("batch", "open"), "running": pgettext_lazy("batch", "running")}
_PARTS = (
    ("done", pgettext_lazy("number of jobs", "done")),
    ("failed", pgettext_lazy("number of jobs", "failed")),
    ("cancelled", pgettext_lazy("number of jobs", "cancelled")),
    ("live", gettext_lazy("live")),
)


def batch_name(batch: JobBatch) -> str:
    """Return its name, or words for a batch without one."""
    return breakable(batch.name) if batch.name else _("batch %(id)d") % {"id": batch.pk}


def batch_state(batch: JobBatch) -> str:
    """Return its state, with a mark."""
    label = _STATES.get(batch.status)
    if label is None:
        return display.status_badge(batch.status)
    if batch.cancel_requested_at is not None:
        return format_html("{} ({})", display.badge("running", str(_STATES["running"])), _("asked to stop"))
    return display.badge("running" if batch.status == "running" else "open", str(label))


def batch_bar(counts: BatchCounts) -> str:
    """Return its numbers as a bar, and in words: "96 of 100 over: 90 done, 6 failed"."""
    # The widths are attributes of a drawing, because a policy may forbid styles in the page.
    added, over = counts.added, counts.added - counts.live
    numbers = {"over": formatting.number(over), "added": formatting.number(added)}
    words = _("%(over)s of %(added)s finished") % numbers
    parts = [(kind, str(label), getattr(counts, kind)) for kind, label in _PARTS]
    details = ", ".join(f"{formatting.number(count)} {label}" for kind, label, count in parts if count)
    if details:
        words = f"{words}: {details}"
    drawn, left = [], 0.0
    for kind, _label, count in parts:
        width = round(100 * max(0, count) / max(1, added), 2)
        if width and kind != "live":
            drawn.append((f"{left:g}", f"{width:g}", kind))
        left += width
    return format_html(
        '<span class="pgqueue-numbers"><svg viewBox="0 0 100 10" preserveAspectRatio="none" role="img" '
        'aria-label="{}">{}</svg><span>{}</span></span>',
        words,
        format_html_join("", '<rect x="{}" width="{}" height="10" class="pgqueue-part-{}"></rect>', drawn),
        words,
    )
