"""Format values: times as elements, periods in words, JSON as an indented block."""

from __future__ import annotations

import json
import math
from datetime import timedelta
from typing import Any

from django.utils.formats import number_format
from django.utils.html import format_html
from django.utils.translation import gettext as _

from ..figures.depth import MOST
from ..models.job import Status
from ..wording import period
from .moments import clock, clock_time, filled, later_time, stored_time, time, timed, zone_name, zone_time

__all__ = [
    "about", "badge", "capped", "clock", "clock_time", "filled", "json_block", "later_time", "number",
    "period", "seconds", "span", "status_badge", "stored_time", "time", "timed", "zone_name",
    "zone_time",
]  # fmt: skip

MOST_CHARACTERS = 20_000


def seconds(count: float | None) -> str:
    """Format how long a job ran: to the millisecond below a minute, and coarse above; empty for None."""
    if count is None:
        return ""
    count = round(count, 3)  # ``number_format`` cuts digits off
    if count < 60:
        return _("%(seconds)s s") % {"seconds": number_format(count, 3, use_l10n=True)}
    return period(timedelta(seconds=count))


def span(count: float) -> str:
    """Format a length of time in a suitable unit: '0.8 ms', '12 ms', '1.5 s', '42 s', '5 min'."""
    if count < 0.9995:
        return _("%(count)s ms") % {"count": _short(count * 1000)}
    if count < 59.5:
        return _("%(seconds)s s") % {"seconds": _short(count)}
    return period(timedelta(seconds=round(count)))


def _short(count: float) -> str:
    """With one digit after the point below ten. Rounded here: ``number_format`` cuts digits off."""
    digits = 1 if 0 < count < 9.95 else 0
    return number_format(round(count, digits), digits, use_l10n=True)


def number(count: int) -> str:
    """Format a count with thousands separators."""
    return number_format(count, use_l10n=True, force_grouping=True)


def capped(count: int, most: int = MOST) -> str:
    """Format a count that is exact up to a limit, and the estimate of the planner beyond it."""
    return number(count) if count < most else about(count)


def about(count: int) -> str:
    """Format the estimate of a count, with two digits."""
    return f"\N{ALMOST EQUAL TO} {number(round(count, 1 - math.floor(math.log10(count))) if count else 0)}"


def status_badge(status: str) -> str:
    """Format the status of a job."""
    return badge(status, str(Status(status).label) if status in Status.values else status)


def badge(state: str, label: str) -> str:
    """Format a state: the label with a mark, so that it can be read without the color."""
    return format_html('<span class="pgqueue-status pgqueue-{}">{}</span>', state, label)


def json_block(value: Any) -> str:
    """Format a JSON value, indented, and cut after about 20,000 characters."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    if len(text) > MOST_CHARACTERS:
        left_out = number(len(text) - MOST_CHARACTERS)
        text = text[:MOST_CHARACTERS] + "\n" + _("… and %(count)s more characters") % {"count": left_out}
    return format_html('<pre class="pgqueue-block" tabindex="0" data-pgqueue-json>{}</pre>', text)
