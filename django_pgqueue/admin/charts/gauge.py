"""A bar that shows how much of something is used, drawn by the server as SVG. The number is always beside it,
so screen readers skip the bar.
"""

from __future__ import annotations

from django.utils.html import format_html

__all__ = ["gauge"]


def gauge(share: float, *, alarm: bool = False) -> str:
    """Return the bar for a share from 0 to 1; more than that is a full bar."""
    width = round(100 * min(max(share, 0.0), 1.0))
    return format_html(
        '<svg class="pgqueue-gauge{}" viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true"'
        ' focusable="false"><rect class="pgqueue-gauge-all" width="100" height="8"/>'
        '<rect class="pgqueue-gauge-used" width="{}" height="8"/></svg>',
        " pgqueue-gauge-alarm" if alarm else "",
        width,
    )
