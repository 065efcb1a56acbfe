"""``manage.py pgqueue pause``: pause a queue, a task, or everything."""

from __future__ import annotations

import getpass
import re
from argparse import ArgumentTypeError
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from django.utils import timezone
from django.utils.dateparse import parse_datetime

from ...compat import InvalidTask
from ...lifecycle.pause import pause
from ._targets import add_targets, target_of, words

if TYPE_CHECKING:
    from argparse import ArgumentParser

    from django.core.management.base import OutputWrapper

NAME = "pause"
HELP = "Pause a queue, a task, or everything; running jobs finish"

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def add_arguments(parser: ArgumentParser) -> None:
    """Add what to pause, why, and until when."""
    add_targets(parser)
    parser.add_argument("--reason", default="", metavar="TEXT", help="why, for others to read")
    parser.add_argument("--author", metavar="NAME", help="who (default: your user name)")
    end = parser.add_mutually_exclusive_group()
    end.add_argument(
        "--until", type=moment, metavar="TIME", help="when it ends by itself, such as 2026-11-23T18:00"
    )
    end.add_argument(
        "--for", dest="period", type=period, metavar="PERIOD", help="for how long: 90s, 30m, 2h or 1d"
    )


def run(options: dict[str, Any], stdout: OutputWrapper) -> None:
    """Pause it."""
    author = options.get("author")
    try:
        paused = pause(
            **target_of(options),
            reason=options.get("reason") or "",
            author=_user() if author is None else author,
            until=options.get("until") or options.get("period"),
            using=options["database"],
        )
    except (ValueError, InvalidTask) as error:
        raise ArgumentTypeError(str(error)) from error
    end = f" until {timezone.localtime(paused.until):%Y-%m-%d %H:%M:%S %Z}" if paused.until else ""
    stdout.write(f"Paused {words(options)}{end}.")


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


def _user() -> str:
    try:
        return getpass.getuser()[:150]
    except (KeyError, OSError, ImportError):  # a user id without a name, as in many containers
        return ""
