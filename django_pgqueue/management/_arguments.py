"""Types of command line arguments, with the error messages for values that they refuse."""

from __future__ import annotations

import getpass
import os
import re
from argparse import ArgumentTypeError
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, TypeAlias

from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, connections
from django.utils import timezone
from django.utils.dateparse import parse_datetime

from .. import conf
from ..compat import InvalidTask
from ..exceptions import moment as with_zone
from ..monitoring.spans import SPANS, TimeSpan
from ..tasks.links import parse_id
from ..tasks.options import queue_name
from ..tasks.routing import default_backend


def queue_names(value: str | Iterable[str]) -> tuple[str, ...]:
    """Parse ``mail,default`` into a tuple without repetitions."""
    return tuple(_weighted(value, queue_name, "\0"))


def weighted_queues(value: str | Iterable[str]) -> dict[str, int | None]:
    """Parse ``critical:6,low``, or what ``call_command`` gives, into weights; None: the queue has none."""
    return _weighted(value, queue_name, ":")


def weighted_databases(value: str | Iterable[str]) -> dict[str, int | None]:
    """Parse ``default,s1:3`` into a dict of weights of aliases, like ``weighted_queues``."""
    return _weighted(value, database_alias, ":")


def _weighted(value: str | Iterable[str], check: Callable[[str], str], colon: str) -> dict[str, int | None]:
    if isinstance(value, dict):
        return value
    weights: dict[str, int | None] = {}
    for part in value.split(",") if isinstance(value, str) else value:
        name, weighs, number = (each.strip() for each in part.partition(colon))
        try:
            weights[check(name)] = (
                conf.weight(int(number) if number.isdecimal() else number) if weighs else None
            )
        except InvalidTask as error:
            raise ArgumentTypeError(str(error)) from None
        except ValueError as error:
            raise ArgumentTypeError(f"the weight of {name} must be {error}. It is {number!r}") from None
    return weights


def at_least(least: int) -> Callable[[str], int]:
    """Return a type for whole numbers that are at least ``least``."""

    def read(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            raise ArgumentTypeError(f"{text!r} is not a whole number") from None
        if number < least:
            raise ArgumentTypeError(f"{number} is less than {least}")
        return number

    return read


_CPU_QUOTA = Path("/sys/fs/cgroup/cpu.max")  # of a container; source: Linux, "Control Group v2", CPU


def processes(given: str | int) -> int:
    """Parse a number of processes. ``auto``: one for each CPU of the machine, or of a container's quota."""
    if given != "auto":
        return at_least(1)(str(given))
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = map(int, _CPU_QUOTA.read_text(encoding="ascii").split())
    except (OSError, ValueError):  # there is none, or it is "max"
        return cpus
    return max(1, min(cpus, -(-quota // period)))


def writable_path(text: str) -> str:
    """Return the absolute path of a file that can be written beside others."""
    path = Path(text).absolute()
    if path.is_dir() or not os.access(path.parent, os.W_OK | os.X_OK):
        raise ArgumentTypeError(f"{text!r} cannot be written: it must be a file in a folder that exists")
    return str(path)


def database_alias(text: str | None) -> str:
    """Check an alias of DATABASES. The default is the database of jobs that do not name one."""
    alias = default_backend().home() if text is None else text
    if alias not in connections.settings:
        known = ", ".join(sorted(connections.settings))
        raise ArgumentTypeError(f"{alias!r} is not in DATABASES. The aliases are {known}.")
    return alias


_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 24 * 3600}


def moment(text: str) -> datetime:
    """Read a time; without a time zone, it is in the current one, which without USE_TZ is TIME_ZONE."""
    try:
        found = parse_datetime(text)
    except ValueError:
        found = None
    if found is None:
        raise ArgumentTypeError(f"{text!r} is not a time such as 2026-11-23T18:00")
    if settings.USE_TZ and timezone.is_naive(found):
        return timezone.make_aware(found)
    return with_zone("a time", found)


def duration(text: str) -> timedelta:
    """Read a duration: seconds, or a number with a unit."""
    found = re.fullmatch(r"(\d{1,10}(?:\.\d{1,6})?)([smhd]?)", text)
    if found is None:
        raise ArgumentTypeError(f"{text!r} is not a duration such as 90s, 30m, 2h, 1d or a number of seconds")
    length = float(found[1]) * _UNITS[found[2]]
    if length > conf.HUNDRED_YEARS:
        raise ArgumentTypeError(f"{text} is longer than 100 years")
    return timedelta(seconds=length)


def seconds(least: float = 0) -> Callable[[Any], float]:
    """Return a type for durations in seconds, which also reads numbers and timedeltas of ``call_command``."""

    def read(value: Any) -> float:
        try:
            return conf.seconds(least)(duration(value) if isinstance(value, str) else value)
        except ValueError:
            raise ArgumentTypeError(f"{value!r} is not a duration from {least:g} s to 100 years") from None

    return read


def span(value: Any) -> TimeSpan:
    """Read one of the spans that have statistics."""
    length = value.length if isinstance(value, TimeSpan) else timedelta(seconds=seconds()(value))
    for each in SPANS.values():
        if each.length == length:
            return each
    raise ArgumentTypeError(f"{value!r} is none of the spans {', '.join(SPANS)}")


def since(value: str | timedelta) -> datetime | timedelta:
    """Read a time, or a duration before now. What is now, the server must be asked (``clock``)."""
    if isinstance(value, timedelta):
        return value
    for read in (duration, moment):
        try:
            return read(value)
        except ArgumentTypeError:
            continue
    raise ArgumentTypeError(
        f"{value!r} is neither a duration such as 30m or 2h nor a time such as 2026-11-23T18:00"
    )


def user_name() -> str:
    """Return the user of this process, as far as a column has room."""
    try:
        return getpass.getuser()[:150]
    except (ImportError, KeyError, OSError):  # a user id without a name, as in many containers
        return ""


JobId: TypeAlias = tuple[str, int]  # the alias that an id names, empty if it names none, and the number


def job_id(text: str) -> JobId:
    """Read an id."""
    try:
        alias, pk = parse_id(text)
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from None
    if ":" not in text:
        return "", pk
    if alias not in connections.settings:
        raise ArgumentTypeError(f"{alias!r} is not in DATABASES")
    return alias, pk


def by_database(given: Sequence[JobId | int | str], alias: str) -> dict[str, list[int]]:
    """Return the numbers of these jobs without repetitions, by the alias of their database.

    ``alias``: the database of ids that name none. ``call_command`` may give ids that the parser has not read.
    """
    found: dict[str, dict[int, None]] = {}
    for each in given:
        named, pk = each if isinstance(each, tuple) else job_id(str(each))
        found.setdefault(named or alias, {})[pk] = None
    return {named: [*numbers] for named, numbers in found.items()}


def positions(given: str | int | dict[str, int]) -> dict[str, int]:
    """Read where a list goes on: an id, or one for each shard, such as ``81,s1:17``."""
    if isinstance(given, dict):
        return given
    ids = [job_id(part.strip()) for part in str(given).split(",")]
    return {alias or DEFAULT_DB_ALIAS: pk for alias, pk in ids}
