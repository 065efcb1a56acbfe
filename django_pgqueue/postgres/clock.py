"""The time of a database's server, which decides when a job is due. The clocks of applications may be wrong.

Whoever compares a time of the queue with now asks the server for it. A worker that runs a job need not ask:
each claim returns the time, and from then on it counts by the monotonic clock, which is never set.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from time import monotonic

from django.conf import settings
from django.utils import timezone

from . import fetch_value

_heard: dict[str, tuple[str, float]] = {}  # for each alias, the last time that its server has sent, and when


def server_now(alias: str) -> datetime:
    """Ask the server for its time. Like the times of models, it is naive if ``USE_TZ`` is off."""
    now: datetime = fetch_value(alias, "SELECT clock_timestamp()")
    return now


def stored(time: datetime) -> datetime:
    """Return a time with a zone as models have it: without ``USE_TZ``, it is naive, and in TIME_ZONE."""
    if settings.USE_TZ or timezone.is_naive(time):
        return time
    return timezone.make_naive(time, timezone.get_default_timezone())


def heard(alias: str, time: str, at: float | None = None) -> None:
    """Note the time that the server has sent, as text. ``at``: when, by the monotonic clock, which all
    processes of a machine share; None: just now."""
    _heard[alias] = time, monotonic() if at is None else at


def last_heard(alias: str) -> tuple[str, float] | None:
    """Return the last time that the server has sent, and when that was; None if it has not sent any."""
    return _heard.get(alias)


def known(alias: str) -> datetime:
    """Return the time of the server as this worker knows it; that of this machine if it has not heard any."""
    time, at = _heard.get(alias, ("", 0.0))
    if not time:
        return datetime.now(UTC)
    return datetime.fromisoformat(time) + timedelta(seconds=monotonic() - at)
