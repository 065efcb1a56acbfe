"""Times and periods on the command line, with the error messages for what cannot be read."""

from __future__ import annotations

import re
from argparse import ArgumentTypeError
from datetime import datetime, timedelta

from django.utils import timezone
from django.utils.dateparse import parse_datetime

from ..server_time import local

__all__ = ["clock", "iso", "moment", "period", "since"]

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def moment(text: str) -> datetime:
    """Read a time; without a time zone, it is in the current one."""
    try:
        found = parse_datetime(text)
    except ValueError:
        found = None
    if found is None:
        raise ArgumentTypeError(f"{text!r} is not a time such as 2026-11-23T18:00")
    return found if timezone.is_aware(found) else timezone.make_aware(found)


def period(text: str) -> timedelta:
    """Read a period: a whole number and a unit."""
    found = re.fullmatch(r"(\d{1,6})([smhd])", text)
    if found is None:
        raise ArgumentTypeError(f"{text!r} is not a period such as 90s, 30m, 2h or 1d")
    return timedelta(**{_UNITS[found[2]]: int(found[1])})


def since(text: str) -> datetime | timedelta:
    """Read a time, or a period before now. What is now, the server must be asked (``server_time``)."""
    try:
        return period(text)
    except ArgumentTypeError:
        pass
    try:
        return moment(text)
    except ArgumentTypeError:
        raise ArgumentTypeError(
            f"{text!r} is neither a period such as 30m or 2h nor a time such as 2026-11-23T18:00"
        ) from None


def clock(time: datetime) -> str:
    """Format a time in the current time zone."""
    return f"{local(time):%Y-%m-%d %H:%M:%S}"


def iso(time: datetime | None) -> str | None:
    """Format a time for JSON."""
    return None if time is None else time.isoformat()
