"""Format values in the same way everywhere: times as elements, periods in words, states; long texts of a job,
such as its call in one line, JSON values, and names that may break between words; and batches.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import datetime, tzinfo
from functools import partial
from typing import Any, NamedTuple

from django.contrib import admin
from django.utils import timezone
from django.utils.html import conditional_escape, escape, format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe
from django.utils.text import Truncator
from django.utils.translation import gettext as _, gettext_lazy, ngettext_lazy, pgettext_lazy

from .. import conf
from ..formatting import date_time, local, number
from ..models import BatchCounts, JobBatch
from ..models.job import Status
from ..redaction import redact_call

#: A text about a ``number`` of rows, whose ``count`` chooses the form (``with_count``).
plural = partial(ngettext_lazy, number="count")


def with_count(words: Any, count: int) -> str:
    """Fill in the number of rows."""
    return str(words % {"count": count, "number": number(count)})


def status_badge(status: str) -> str:
    """Format the status of a job."""
    return badge(status, str(Status(status).label) if status in Status.values else status)


def badge(state: str, label: str) -> str:
    """Format a state: the label with a mark, so that it can be read without the color."""
    return format_html('<span class="pgqueue-status pgqueue-{}">{}</span>', state, label)


def column(description: Any, text: Callable[[Any], Any], ordering: str = "") -> Callable[[Any, Any], Any]:
    """Return a method for the columns of a list and the fields of a page: what ``text`` makes of a row. The
    admin shows a dash if that is empty.
    """

    @admin.display(description=description, ordering=ordering or None)
    def show(self: Any, row: Any) -> Any:
        return text(row) or self.get_empty_value_display()

    return show


def alarm(text: Any) -> str:
    """Return a text that must be seen."""
    return format_html('<strong class="pgqueue-alarm">{}</strong>', text)


class Fact(NamedTuple):
    """A line of a page: what it is, and how it is now."""

    label: str
    text: Any
    is_default: bool = False  # of an option


def linked(url: str, text: Any) -> str:
    """Return a link, or only the text if there is no URL."""
    return format_html('<a href="{}">{}</a>', url, text) if url else text


def dimmed(text: str) -> str:
    """Return a zero dimmed, such as "0" or "0%", so that the figures of a table stand out."""
    is_zero = f"{text} ".replace("%", " ").startswith(f"{number(0)} ")
    return format_html('<span class="pgqueue-zero">{}</span>', text) if is_zero else text


def with_more(text: Any, more: Any) -> str:
    """Return a text with another one below it, if there is one."""
    return format_html('{}<span class="pgqueue-more">{}</span>', text, more) if more else text


def page_zone() -> dict[str, Any]:
    """Return the current time zone for the bar. The page keeps it, whatever the zone of the browser is, if it
    is activated, so if it is not ``TIME_ZONE``.
    """
    name = zone_name()
    shown = format_html("<span data-pgqueue-zone-name>{}</span>", name)
    is_kept = name != zone_name(timezone.get_default_timezone())
    return {"name": name, "is_kept": is_kept, "words": filled(_("Times are in %(zone)s."), zone=shown)}


def zone_name(zone: tzinfo | None = None) -> str:
    """Return the name of a zone, or of the current one: "Etc/UTC", which Django abbreviates to "UTC"."""
    zone = zone or timezone.get_current_timezone()
    return str(getattr(zone, "key", None) or zone.tzname(None) or zone)


def time(moment: datetime | None) -> str:
    """Format a moment to the second; empty for None (the admin shows a dash)."""
    return "" if moment is None else _element(moment, date_time(moment))


def later_time(moment: datetime, before: datetime | None) -> str:
    """Format a moment that follows another one: without the date if it is of the same day."""
    if before is None:
        return time(moment)
    is_same_day = local(before).date() == local(moment).date()
    text = f"{local(moment):%H:%M:%S}" if is_same_day else date_time(moment)
    return _element(moment, text, format_html(' data-pgqueue-after="{}"', before.isoformat()))


def clock(moment: datetime) -> str:
    """Return the time without the date, to the millisecond, as in a log."""
    return f"{local(moment):%H:%M:%S.%f}"[:-3]


def clock_time(moment: datetime) -> str:
    """Format the time of a line of a log in this way."""
    return _element(moment, clock(moment), SafeString(' data-pgqueue-shows="clock"'))


def timed(words: str, moment: datetime) -> str:
    """Format words about a moment, such as "5 min ago"."""
    return _element(moment, words, SafeString(' data-pgqueue-shows="words"'))


def zone_time(moment: datetime) -> str:
    """Format a moment in its own time zone, which stays."""
    return format_html(
        '<time datetime="{}" title="{} {}">{}</time>',
        moment.isoformat(),
        moment.isoformat(timespec="milliseconds"),
        moment.tzinfo,
        f"{moment:%Y-%m-%d %H:%M:%S}",
    )


def stored_time(moment: datetime) -> str:
    """Format a moment for a text that is kept, and that people in other time zones read: with the zone."""
    return f"{date_time(moment)} {_zone(moment)}".strip()


def exact_time(moment: datetime) -> str:
    """Return the exact instant: "2026-07-01T14:05:00.250+02:00 Europe/Berlin"."""
    return f"{local(moment).isoformat(timespec='milliseconds')} {_zone(moment)}".strip()


def filled(text: str, **values: str) -> SafeString:
    """Put elements into a translated sentence with named places, such as "until %(time)s"."""
    escaped = {name: conditional_escape(value) for name, value in values.items()}
    return mark_safe(conditional_escape(text) % escaped)  # noqa: S308 - both are escaped


def _element(moment: datetime, text: str, more: str = "") -> str:
    """Format a moment as ``<time>``, in Django's current time zone, with the exact instant on hover.

    ``times.js`` shows it in the time zone of the browser instead, unless the project has activated one for
    the user: the date and the time, the time alone if that of ``data-pgqueue-after`` is of the same day, or
    what ``data-pgqueue-shows`` says.
    """
    return format_html(
        '<time class="pgqueue-time" datetime="{}" title="{}"{}>{}</time>',
        moment.isoformat(), exact_time(moment), more, text,
    )  # fmt: skip


def _zone(moment: datetime) -> str:
    return zone_name() if timezone.is_aware(moment) else ""


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
        left_out = number(len(text) - MOST_CHARACTERS)
        text = text[:MOST_CHARACTERS] + "\n" + _("… and %(count)s more characters") % {"count": left_out}
    block = format_html('<pre class="pgqueue-block" tabindex="0" data-pgqueue-json>{}</pre>', text)
    if len(line) <= _FOLDED:
        return block
    return format_html(
        '<details class="pgqueue-long"><summary><code class="pgqueue-value">{}</code> {}</summary>'
        "{}</details>",
        Truncator(line).chars(_SHOWN_OF_CALL),
        _("%(count)s characters") % {"count": number(len(line))},
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
        return status_badge(batch.status)
    if batch.cancel_requested_at is not None:
        return format_html("{} ({})", badge("running", str(_STATES["running"])), _("asked to stop"))
    return badge("running" if batch.status == "running" else "open", str(label))


def batch_bar(counts: BatchCounts) -> str:
    """Return its numbers as a bar, and in words: "96 of 100 over: 90 done, 6 failed"."""
    # The widths are attributes of a drawing, because a policy may forbid styles in the page.
    added, over = counts.added, counts.added - counts.live
    numbers = {"over": number(over), "added": number(added)}
    words = _("%(over)s of %(added)s finished") % numbers
    parts = [(kind, str(label), getattr(counts, kind)) for kind, label in _PARTS]
    details = ", ".join(f"{number(count)} {label}" for kind, label, count in parts if count)
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
