"""Spans of time in the address of a list: a period that ends now, such as ``finished=day``, or from one time
to another, such as ``finished=2026-11-23T10:00..2026-11-23T12:00``.

Of the two times, one may be missing. The second one is not in the span. A day stands for its midnight, and a
time without an offset is in the current time zone.
"""

from __future__ import annotations

import re
from datetime import MAXYEAR, datetime, time, timedelta
from typing import Any, NamedTuple

from django.conf import settings
from django.db.models import Q
from django.utils import timezone
from django.utils.dateparse import parse_date, parse_datetime
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from .. import display

__all__ = ["PERIODS", "Span", "is_span", "read_span", "within_span"]

PERIODS = {
    "hour": (timedelta(hours=1), gettext_lazy("last hour")),
    "day": (timedelta(days=1), gettext_lazy("last 24 hours")),
    "week": (timedelta(days=7), gettext_lazy("last 7 days")),
}

_BETWEEN = ".."
#: In an address, "+" is a space.
_OFFSET = re.compile(r"(T\S*) (?=\d\d(:?\d\d)?$)")


class Span(NamedTuple):
    """From one time to another; None if it has no start or no end."""

    start: datetime | None
    end: datetime | None

    def __str__(self) -> str:
        start, end = (display.stored_time(each) if each else "" for each in self)
        if not end:
            return _("since %(start)s") % {"start": start}
        if not start:
            return _("before %(end)s") % {"end": end}
        return _("from %(start)s to %(end)s") % {"start": start, "end": end}


def read_span(text: str) -> Span | None:
    """Return the span that a text names; None if it is not one with two dots."""
    start, dots, end = text.partition(_BETWEEN)
    if not dots or not (start or end):
        return None
    try:
        return Span(_moment(start), _moment(end))
    except (ValueError, OverflowError):
        return None


def is_span(text: str) -> bool:
    """Return whether a text is the name of a period, or from one time to another."""
    return text in PERIODS or read_span(text) is not None


def within_span(column: str, text: str, now: Any) -> Q:
    """Return the condition that a time is in the span that a text names; an empty one if it names none."""
    if text in PERIODS:
        return Q(**{f"{column}__gte": now - PERIODS[text][0]})
    found = Q()
    start, end = read_span(text) or Span(None, None)
    if start is not None:
        found &= Q(**{f"{column}__gte": start})
    if end is not None:
        found &= Q(**{f"{column}__lt": end})
    return found


def _moment(text: str) -> datetime | None:
    """Return the time, in the current time zone if it has no offset. Raise ValueError if it is not a time."""
    text = _OFFSET.sub(r"\1+", text.strip())
    if not text:
        return None
    day = parse_date(text)
    moment = parse_datetime(text) if day is None else datetime.combine(day, time.min)
    if moment is None:
        raise ValueError(text)
    if timezone.is_aware(moment) != settings.USE_TZ:
        moment = timezone.make_aware(moment) if settings.USE_TZ else timezone.make_naive(moment)
    # Beyond these years, a time has no equal in every zone.
    if not 1 < moment.year < MAXYEAR:
        raise ValueError(text)
    return moment
