"""Format values: times to the second, periods in words, JSON as an indented block."""

from __future__ import annotations

import json
import math
from datetime import datetime, timedelta
from typing import Any

from django.utils import timezone
from django.utils.formats import number_format
from django.utils.html import format_html
from django.utils.translation import gettext as _

from ..figures.depth import MOST
from ..models.job import Status
from ..wording import period

__all__ = [
    "badge", "capped", "json_block", "later_time", "number", "period", "plain_time", "seconds", "span",
    "status_badge", "time",
]  # fmt: skip

MOST_CHARACTERS = 20_000


def time(moment: datetime | None) -> str:
    """Format a time in the current time zone, to the second; empty for None (the admin shows a dash)."""
    if moment is None:
        return ""
    return format_html(
        '<time class="pgqueue-time" datetime="{}">{}</time>', moment.isoformat(), plain_time(moment)
    )


def later_time(moment: datetime, before: datetime | None) -> str:
    """Format a time that follows another one: without the date if it is of the same day."""
    full = plain_time(moment)
    if before is None or plain_time(before)[:10] != full[:10]:
        return time(moment)
    return format_html(
        '<time class="pgqueue-time" datetime="{}" title="{}">{}</time>', moment.isoformat(), full, full[11:]
    )


def plain_time(moment: datetime) -> str:
    """Format a time in the same way, without markup."""
    local = timezone.localtime(moment) if timezone.is_aware(moment) else moment
    return f"{local:%Y-%m-%d %H:%M:%S}"


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
    if count < most:
        return number(count)
    return f"\N{ALMOST EQUAL TO} {number(round(count, 1 - math.floor(math.log10(count))))}"


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
