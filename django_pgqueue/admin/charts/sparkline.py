"""Small lines beside a number that show how it was before, drawn by the server as SVG.

They have neither axes nor figures, so they are hidden from screen readers: the number and the chart say more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.utils.html import format_html

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["sparkline"]

WIDTH, HEIGHT = 120, 28
_EDGE = 1.5  # so that the stroke is not cut off


def sparkline(values: Sequence[float | None], color: str = "main") -> str:
    """Return a line from the oldest value to the newest, from zero up; empty for fewer than two values.

    None counts as zero. ``color`` is one of those of a ``Series``.
    """
    numbers = [value or 0.0 for value in values]
    if len(numbers) < 2:
        return ""
    most = max(numbers) or 1.0
    step = WIDTH / (len(numbers) - 1)
    room = HEIGHT - 2 * _EDGE
    line = " ".join(
        f"{place * step:.1f},{HEIGHT - _EDGE - room * number / most:.1f}"
        for place, number in enumerate(numbers)
    )
    return format_html(
        '<svg class="pgqueue-spark pgqueue-series-{}" viewBox="0 0 {} {}" preserveAspectRatio="none"'
        ' aria-hidden="true" focusable="false">'
        '<polygon points="0,{} {} {},{}"/><polyline points="{}"/></svg>',
        color, WIDTH, HEIGHT, HEIGHT, line, WIDTH, HEIGHT, line,
    )  # fmt: skip
