"""The timeline of a job as a drawing, with a table of the same figures.

The drawing is SVG without a script or a style. Its width follows the page, so there is no text in it: what
the parts are is in their titles, in the legend, and in the table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from django.utils.html import format_html, format_html_join

from .. import display
from .timeline import KINDS, attempt_name, parts_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from .timeline import Part

__all__ = ["Row", "Timeline", "timeline_of"]

WIDTH, HEIGHT = 1000, 20
#: What waits is lower than what runs, so that the kinds can be told without colors.
_HEIGHTS = {"later": 4, "ahead": 4, "waited": 10, "blocked": 10, "backoff": 6, "between": 2}
#: The share of the width that the shortest part gets. Otherwise, nobody would see a job of 5 ms that waited.
_LEAST = 0.02


class Row(NamedTuple):
    """A part, for the table."""

    what: str
    kind: str
    attempt: int | None
    start: str
    took: str
    worker: str
    error: str


class Timeline(NamedTuple):
    """What the template shows."""

    drawing: str
    legend: list[tuple[str, str, int, int]]
    """The kinds that occur, what they are, and where the mark begins and how high it is."""
    rows: list[Row]
    start: str
    end: str


def timeline_of(job: Any, worker: Callable[[int], str]) -> Timeline | None:
    """Return the timeline of a job; None if it has lasted no time. ``worker`` formats the id of a worker."""
    parts = parts_of(job)
    if not parts:
        return None
    kinds = {part.kind for part in parts}
    return Timeline(
        _drawing(parts),
        [(kind, str(label), *_size(kind, 2)) for kind, label in KINDS.items() if kind in kinds],
        [_row(part, worker) for part in parts],
        display.time(parts[0].start),
        display.later_time(parts[-1].end, parts[0].start),
    )


def _row(part: Part, worker: Callable[[int], str]) -> Row:
    by = worker(int(part.worker)) if part.worker.lstrip("-").isdecimal() else ""
    return Row(
        part.label,
        part.kind,
        part.attempt,
        display.time(part.start),
        display.span(part.seconds),
        by,
        part.error,
    )


def _drawing(parts: list[Part]) -> str:
    """Return the parts beside each other. Those that would be too narrow to see take from the others."""
    total = sum(part.seconds for part in parts)
    least = min(_LEAST, 0.5 / len(parts))
    widths = [max(least, part.seconds / total) for part in parts]
    scale, place, shapes = WIDTH / sum(widths), 0.0, []
    for part, width in zip(parts, widths, strict=True):
        size = f"{place:.1f}", f"{width * scale:.1f}", *_size(part.kind)
        shapes.append((part.kind, *size, _title(part)))
        place += width * scale
    rects = format_html_join(
        "",
        '<rect class="pgqueue-span-{}" x="{}" width="{}" y="{}" height="{}"><title>{}</title></rect>',
        shapes,
    )
    return format_html(
        '<svg viewBox="0 0 {} {}" preserveAspectRatio="none" aria-hidden="true" focusable="false">{}</svg>',
        WIDTH, HEIGHT, rects,
    )  # fmt: skip


def _size(kind: str, scale: int = 1) -> tuple[int, int]:
    """Return where the shapes of a kind begin, and how high they are."""
    height = _HEIGHTS.get(kind, HEIGHT)
    return (HEIGHT - height) // 2 // scale, height // scale


def _title(part: Part) -> str:
    """Return what a pointer shows: "attempt 2: ran and failed, 1.5 s. shop.errors.GatewayDown: no answer"."""
    name = attempt_name(part.attempt)
    words = f"{name}: {part.label}" if name else part.label
    return f"{words}, {display.span(part.seconds)}" + (f". {part.error}" if part.error else "")
