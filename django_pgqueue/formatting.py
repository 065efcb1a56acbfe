"""How figures are written: counts, times, lengths of time, rates; and texts without control characters."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from contextvars import ContextVar
from datetime import datetime, timedelta
from difflib import get_close_matches

from django.utils import timezone
from django.utils.formats import number_format
from django.utils.translation import gettext as _


def counted(number: int, one: str, many: str = "") -> str:
    """Return ``number`` with its noun, for logs and terminals: not translated. ``many``: ``one`` plus "s"."""
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"


def first_few(names: Sequence[str]) -> str:
    """Return the first three, and how many more there are."""
    more = f", and {len(names) - 3} more" if len(names) > 3 else ""
    return f"{', '.join(names[:3])}{more}"


def did_you_mean(word: str, known: Iterable[str], otherwise: str = "") -> str:
    """Return a hint at the most similar of the known words, or what to say if none is near."""
    near = get_close_matches(word, sorted(known), n=1)
    return f"Did you mean {near[0]!r}?" if near else otherwise


def number(count: float, digits: int = 0) -> str:
    """A number with thousands separators. It is rounded, because ``number_format`` cuts digits off."""
    return number_format(round(count, digits), digits, use_l10n=True, force_grouping=True)


def local(time: datetime) -> datetime:
    """Return a time of the database in the current time zone. Without ``USE_TZ``, it is naive, and there."""
    return timezone.localtime(time) if timezone.is_aware(time) else time


def date_time(time: datetime) -> str:
    """A time to the second, in the current time zone: '2026-07-01 14:05:00'."""
    return f"{local(time):%Y-%m-%d %H:%M:%S}"


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


def how_soon(ahead: timedelta) -> str:
    """The time until something is due, or how long it has been: 'in 5 min', 'due for 5 min'."""
    text = _("in %(period)s") if ahead > timedelta() else _("due for %(period)s")
    return text % {"period": period(abs(ahead))}


def age(seconds: float) -> str:
    """Like ``period()``, with a digit after the point below one second: '0.4 s', '3 s', '5 min'."""
    if not 0 < seconds < 1:
        return period(timedelta(seconds=seconds))
    return _("%(seconds)s s") % {"seconds": number(seconds, 1)}


def span(seconds: float) -> str:
    """How long something took, in a suitable unit: '0.8 ms', '12 ms', '1.5 s', '42 s', '5 min'."""
    if seconds < 0.9995:
        return _("%(count)s ms") % {"count": _short(seconds * 1000)}
    if seconds < 59.5:
        return _("%(seconds)s s") % {"seconds": _short(seconds)}
    return period(timedelta(seconds=round(seconds)))


def exact(length: timedelta) -> str:
    """Like ``period()`` if that leaves nothing out, otherwise in seconds: '5 min', '90 s', '0.5 s'."""
    seconds = length.total_seconds()
    unit = 1 if seconds < 60 else 60 if seconds < 24 * 3600 else 3600
    if seconds and not seconds % unit:
        return period(length)
    digits = len(f"{seconds:f}".rstrip("0").partition(".")[2])
    return _("%(seconds)s s") % {"seconds": number(seconds, digits)}


def rate(count: int, per: timedelta) -> str:
    """How many may start in which time: '100 a minute', '100 in 5 min'."""
    words = {
        timedelta(seconds=1): _("%(count)s a second"),
        timedelta(minutes=1): _("%(count)s a minute"),
        timedelta(hours=1): _("%(count)s an hour"),
        timedelta(days=1): _("%(count)s a day"),
    }.get(per, _("%(count)s in %(period)s"))
    return words % {"count": number(count), "period": exact(per)}


def throughput(per_second: float) -> str:
    """How fast jobs end: '214 jobs/s', '2.5 jobs/s', '12 jobs/min', '< 0.1 jobs/min'."""
    is_slow = per_second < 1
    count = per_second * 60 if is_slow else per_second
    text = f"< {number(0.1, 1)}" if 0 < count < 0.05 else _short(count)
    return (_("%(count)s jobs/min") if is_slow else _("%(count)s jobs/s")) % {"count": text}


def percent(share: float, digits: int = 0) -> str:
    """A share of 1: '75%', with a digit '5.9%', '< 0.1%'. It is zero only if there is nothing at all."""
    least = 10.0 ** -(digits + 2)
    text = number(100 * share, digits if share else 0)
    return _("%(share)s%%") % {"share": f"< {number(100 * least, digits)}" if 0 < share < least else text}


def _short(count: float) -> str:
    """With one digit after the point below ten."""
    return number(count, 1 if 0 < count < 9.95 else 0)


def plain(text: str) -> str:
    """Return a text in one line, with its control characters written out."""
    text = text.replace("\xa0", " ")  # of Django's ``filesizeformat``
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


# Logs. Paths of tasks, names, keys and the messages of errors come from anywhere, also by SQL, and a terminal
# obeys the control characters in them. All loggers of the package pass their records through one filter.

MOST_BYTES = 64 * 2**10
"""Of an exception. The messages of exceptions may be of any size, and each attempt prints one."""
_LONGEST_CHAIN = 10


#: What the lines begin with that this thread logs, such as the shard that it serves.
log_prefix: ContextVar[str] = ContextVar("log_prefix", default="")


def get_logger(name: str) -> logging.Logger:
    """Return a logger whose records have no control characters in their lines, and begin with the prefix."""
    logger = logging.getLogger(name)
    logger.addFilter(_write_out)
    return logger


def _write_out(record: logging.LogRecord) -> bool:
    """Write out the control characters in the arguments of a record, and in the exception that it shows."""
    if prefix := log_prefix.get():
        record.msg = f"{prefix.replace('%', '%%') if record.args else prefix}{record.msg}"
    if isinstance(record.args, tuple):
        record.args = tuple(map(_written_out, record.args))
    elif record.args:
        record.args = {name: _written_out(value) for name, value in record.args.items()}
    if record.exc_info and record.exc_info[1] is not None and not _is_printable(record.exc_info[1]):
        text = logging.Formatter().formatException(record.exc_info)
        record.exc_text = shorten("\n".join(map(plain, text.split("\n"))), MOST_BYTES)
    return True


def _written_out(value: object) -> object:
    """Return a value as it is, or a text without control characters for what ``%s`` would show with some."""
    if isinstance(value, (int, float, bool)) or value is None:
        return value
    text = _text(value)
    return value if text.isprintable() else plain(text)


def _text(value: object) -> str:
    """Return what ``%s`` shows; nothing if that raises, which logging reports."""
    try:
        return str(value)
    except Exception:
        return ""


def _is_printable(error: BaseException) -> bool:
    """Return whether the messages of an exception and its causes are lines without control characters."""
    each: BaseException | None = error
    for _depth in range(_LONGEST_CHAIN):
        if each is None:
            return True
        if not all(line.isprintable() for line in _text(each).split("\n")):
            return False
        each = each.__cause__ or each.__context__
    return True


def storable(text: str) -> str:
    """Escape the characters that PostgreSQL refuses: NUL and lone surrogates."""
    return text.replace("\0", "\\x00").encode("utf-8", "backslashreplace").decode("utf-8")


def cut(text: str, most: int) -> str:
    """Return a text of at most so many characters, the last of which says that there are more."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def shorten(text: str, limit: int) -> str:
    """Cut the text to ``limit`` bytes. Keep more of the end, because the end of a traceback matters most."""
    data = text.encode(errors="surrogatepass")
    if len(data) <= limit:
        return text
    head, left_out = limit // 4, len(data) - limit
    first, last = (part.decode(errors="ignore") for part in (data[:head], data[head + left_out :]))
    return f"{first}\n... {left_out} bytes left out ...\n{last}"
