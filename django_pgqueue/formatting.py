"""Counts with a noun, for log lines and for the output of commands: "1 job", "2 jobs"; lengths of time;
rates; texts without control characters.
"""

from __future__ import annotations

from datetime import timedelta

from django.utils.formats import number_format
from django.utils.translation import gettext as _

__all__ = ["age", "counted", "exact", "period", "plain", "rate"]


def counted(number: int, one: str, many: str = "") -> str:
    """Return ``number`` with its noun: ``one`` for 1, otherwise ``many`` (default: ``one`` plus "s").

    These texts are for logs and terminals and are not translated; the admin uses ``ngettext``.
    """
    return f"{number} {one if number == 1 else many or f'{one}s'}"


def period(length: timedelta | None) -> str:
    """A length of time, coarse: '3 s', '5 min', '2 h 5 min', '2 h', '4 d 3 h', '4 d'; empty for None."""
    if length is None:
        return ""
    seconds = max(0, int(length.total_seconds()))
    if seconds < 60:
        return _("%(seconds)d s") % {"seconds": seconds}
    minutes, seconds = divmod(seconds, 60)
    if minutes < 60:
        return _("%(minutes)d min") % {"minutes": minutes}
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        text = _("%(hours)d h %(minutes)d min") if minutes else _("%(hours)d h")
        return text % {"hours": hours, "minutes": minutes}
    days, hours = divmod(hours, 24)
    text = _("%(days)d d %(hours)d h") if hours else _("%(days)d d")
    return text % {"days": days, "hours": hours}


def age(seconds: float) -> str:
    """Like ``period()``, with a digit after the point below one second: '0.4 s', '3 s', '5 min'."""
    if not 0 < seconds < 1:
        return period(timedelta(seconds=seconds))
    return _("%(seconds)s s") % {"seconds": number_format(round(seconds, 1), 1, use_l10n=True)}


def exact(length: timedelta) -> str:
    """Like ``period()`` if that leaves nothing out, otherwise in seconds: '5 min', '90 s', '0.5 s'."""
    seconds = length.total_seconds()
    unit = 1 if seconds < 60 else 60 if seconds < 24 * 3600 else 3600
    if seconds and not seconds % unit:
        return period(length)
    digits = len(f"{seconds:f}".rstrip("0").partition(".")[2])
    text = number_format(seconds, digits, use_l10n=True, force_grouping=True)
    return _("%(seconds)s s") % {"seconds": text}


def rate(count: int, per: timedelta) -> str:
    """How many may start in which time: '100 a minute', '100 in 5 min'."""
    words = {
        timedelta(seconds=1): _("%(count)s a second"),
        timedelta(minutes=1): _("%(count)s a minute"),
        timedelta(hours=1): _("%(count)s an hour"),
        timedelta(days=1): _("%(count)s a day"),
    }.get(per, _("%(count)s in %(period)s"))
    number = number_format(count, use_l10n=True, force_grouping=True)
    return words % {"count": number, "period": exact(per)}


def plain(text: str) -> str:
    """Return a text in one line, with its control characters written out."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _written(char) for char in text)


def _written(char: str) -> str:
    return {"\n": "\\n", "\t": "\\t", "\r": "\\r"}.get(char) or char.encode("unicode_escape").decode()
