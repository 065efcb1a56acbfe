"""Format values: times as elements, periods in words."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta, tzinfo
from typing import Any, NamedTuple

from django.contrib import admin
from django.utils import timezone
from django.utils.html import conditional_escape, format_html
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import gettext as _

from ..formatting import date_time, local, number, period
from ..models.job import Status


def seconds(count: float | None) -> str:
    """Format how long a job ran: to the millisecond below a minute, and coarse above; empty for None."""
    if count is None:
        return ""
    if round(count, 3) < 60:
        return _("%(seconds)s s") % {"seconds": number(count, 3)}
    return period(timedelta(seconds=round(count, 3)))


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


def linked(url: str, text: Any) -> str:
    """Return a link, or only the text if there is no URL."""
    return format_html('<a href="{}">{}</a>', url, text) if url else text


def dimmed(text: str) -> str:
    """Return a zero dimmed, such as "0" or "0 %", so that the figures of a table stand out."""
    is_zero = f"{text} ".startswith(f"{number(0)} ")
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
