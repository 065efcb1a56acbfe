"""How fast jobs end: one definition and one wording, for the verdict, the pages, the charts and the terminal.

A rate is the number of attempts that have ended in a span, divided by how long the span has lasted so far.
An attempt counts however it ended, so a job that is tried twice counts twice.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from django.utils.formats import number_format
from django.utils.translation import gettext as _

from ..models import stat
from .spans import Span, breakdown

if TYPE_CHECKING:
    from collections.abc import Collection

    from .spans import Figures

__all__ = ["per_second", "rate_text", "rates"]

MOST_QUEUES = 1_000
_MINUTE = timedelta(minutes=1)
#: The last full minute, and the one that is not over. These are few rows, one for each queue.
_NOW = Span("now", _MINUTE, _MINUTE, stat.Span.MINUTE, _MINUTE, stat.Span.MINUTE)


def per_second(points: Collection[Figures]) -> float:
    """Return how many attempts have ended a second in points that follow each other, or in a span."""
    seconds = sum(point.seconds for point in points)
    return sum(point.attempts for point in points) / seconds if seconds else 0.0


def rates(alias: str) -> dict[str, float]:
    """Return how many attempts end a second now, in each queue. Raises ``TimeLimitReached``."""
    return {row.queue_name: per_second([row]) for row in breakdown(alias, _NOW, "queue", most=MOST_QUEUES)}


def rate_text(per_second: float) -> str:
    """Return a rate in words: "214 jobs/s", "2.5 jobs/s", "12 jobs/min", "< 0.1 jobs/min"."""
    is_slow = per_second < 1
    count = per_second * 60 if is_slow else per_second
    digits = 1 if 0 < count < 9.95 else 0
    is_tiny = 0 < count < 0.05
    text = number_format(0.1 if is_tiny else round(count, digits), digits, use_l10n=True, force_grouping=True)
    text = f"< {text}" if is_tiny else text
    return (_("%(count)s jobs/min") if is_slow else _("%(count)s jobs/s")) % {"count": text}
