"""A batch in the admin: its state, its numbers as a bar, and how long it lasts."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.utils.html import format_html, format_html_join
from django.utils.safestring import mark_safe
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, pgettext_lazy

from ... import formatting
from ...models import BatchCounts, JobBatch
from .. import display
from ..jobs.texts import breakable

_STATES = {"open": pgettext_lazy("batch", "open"), "running": pgettext_lazy("batch", "running")}
_PARTS = (
    ("done", pgettext_lazy("number of jobs", "done")),
    ("failed", pgettext_lazy("number of jobs", "failed")),
    ("cancelled", pgettext_lazy("number of jobs", "cancelled")),
    ("live", gettext_lazy("live")),
)


def name(batch: JobBatch) -> str:
    """Return its name, or words for a batch without one."""
    return breakable(batch.name) if batch.name else _("batch %(id)d") % {"id": batch.pk}


def state(batch: JobBatch) -> str:
    """Return its state, with a mark."""
    label = _STATES.get(batch.status)
    if label is None:
        return display.status_badge(batch.status)
    if batch.cancel_requested_at is not None:
        return format_html("{} ({})", display.badge("running", str(_STATES["running"])), _("asked to stop"))
    return display.badge("running" if batch.status == "running" else "open", str(label))


def lasted(batch: JobBatch, now: datetime) -> str:
    """Return how long it lasts, or has lasted."""
    return formatting.period((batch.finished_at or now) - batch.created_at)


def bar(counts: BatchCounts) -> str:
    """Return its numbers as a bar, and in words: "96 of 100 over: 90 done, 6 failed".

    The widths are attributes of a drawing, because a policy may forbid styles in the page.
    """
    added, over = counts.added, counts.added - counts.live
    words = _("%(over)s of %(added)s finished") % {
        "over": formatting.number(over),
        "added": formatting.number(added),
    }
    parts = [(kind, str(label), getattr(counts, kind)) for kind, label in _PARTS]
    details = ", ".join(f"{formatting.number(count)} {label}" for kind, label, count in parts if count)
    if details:
        words = f"{words}: {details}"
    return format_html(
        '<span class="pgqueue-numbers"><svg viewBox="0 0 100 10" preserveAspectRatio="none" role="img" '
        'aria-label="{}">{}</svg><span>{}</span></span>',
        words,
        _segments(parts, added),
        words,
    )


def _segments(parts: list[tuple[str, str, int]], added: int) -> Any:
    if not added:
        return mark_safe("")
    drawn, left = [], 0.0
    for kind, _label, count in parts:
        width = round(100 * max(0, count) / added, 2)
        if width and kind != "live":
            drawn.append((f"{left:g}", f"{width:g}", kind))
        left += width
    return format_html_join("", '<rect x="{}" width="{}" height="10" class="pgqueue-part-{}"></rect>', drawn)
