"""How the values of settings are read. A ValueError says what is accepted."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from datetime import timedelta
from difflib import get_close_matches
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Any

__all__ = [
    "BUILT_IN", "HUNDRED_YEARS", "Thresholds", "capture_levels", "context_names", "log_level", "modules",
    "networks", "or_none", "paths", "period", "queue_or_none", "seconds", "thresholds", "timeout", "token",
    "version", "weight", "weights", "whole",
]  # fmt: skip

HUNDRED_YEARS = 36525 * 86400.0

#: What CONTEXT may name besides the paths of context variables.
BUILT_IN = ("language", "trace", "user")
_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")


def context_names(value: Any) -> tuple[str, ...]:
    """Accept names of what travels with jobs: some of `BUILT_IN`, and paths of context variables."""
    if isinstance(value, (str, bytes, Mapping)) or not hasattr(value, "__iter__"):
        raise ValueError('a list, such as ["language", "trace", "shop.tenants.current_tenant"]')
    names = tuple(value)
    for name in names:
        parts = name.split(".") if isinstance(name, str) else []
        is_path = len(parts) > 1 and all(part.isidentifier() for part in parts)
        if name in BUILT_IN or is_path:
            continue
        near = get_close_matches(str(name), BUILT_IN, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"the names are {', '.join(BUILT_IN)}"
        raise ValueError(f"names and paths of context variables, not {name!r}; {hint}")
    return tuple(dict.fromkeys(names))


def log_level(value: Any) -> int:
    """Accept the name of a level, True for INFO, or False for none; return its number, or 0 for none."""
    if isinstance(value, bool):
        return logging.INFO if value else 0
    if value not in _LEVELS:
        near = get_close_matches(str(value).upper(), _LEVELS, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"True, False, or a level ({', '.join(_LEVELS)}){hint}")
    return int(getattr(logging, value))


def capture_levels(value: Any) -> dict[str, int]:
    """Accept a level for all queues, or a dict of queues (``"*"`` for all others) and their levels."""
    given = value if isinstance(value, Mapping) else {"*": value}
    if not all(isinstance(name, str) and name for name in given):
        raise ValueError('a level, or a dict of queues and levels, such as {"reports": "INFO"}')
    try:
        return {name: log_level(level) for name, level in given.items()}
    except ValueError as bad:
        raise ValueError(f"a level, or a dict of queues and levels; each level is {bad}") from None


def whole(low: int, high: int) -> Callable[[Any], int]:
    """Accept a whole number from `low` to `high`."""

    def read(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise ValueError(f"a whole number from {low} to {high}")
        return value

    return read


def timeout(value: Any) -> int | None:
    """Accept None, or whole seconds."""
    if value is None:
        return None
    try:
        return whole(1, 2**31 - 1)(value)
    except ValueError:
        raise ValueError("None or whole seconds, at least 1") from None


def seconds(low: float, high: float = HUNDRED_YEARS) -> Callable[[Any], float]:
    """Accept a number of seconds or a timedelta; return seconds."""

    def read(value: Any) -> float:
        count = value.total_seconds() if isinstance(value, timedelta) else value
        number = isinstance(count, (int, float)) and not isinstance(count, bool)
        if not number or not math.isfinite(count) or not low <= count <= high:
            most = "100 years" if high == HUNDRED_YEARS else f"{high:g}"
            raise ValueError(f"seconds or a timedelta, from {low:g} to {most}")
        return float(count)

    return read


def or_none(low: float, high: float) -> Callable[[Any], float | None]:
    """Accept None, or a number of seconds or a timedelta; return seconds."""

    def read(value: Any) -> float | None:
        if value is None:
            return None
        try:
            return seconds(low, high)(value)
        except ValueError as bad:
            raise ValueError(f"None or {bad}") from None

    return read


def weight(value: Any) -> int:
    """Accept the weight of a queue or a group."""
    try:
        return whole(1, 1000)(value)
    except ValueError as bad:
        hint = "; to let no job start, pause the queue" if value == 0 else ""
        raise ValueError(f"{bad}{hint}") from None


def weights(value: Any) -> dict[str, int]:
    """Accept a dict of groups and their weights."""
    if not isinstance(value, Mapping) or not all(isinstance(name, str) and name for name in value):
        raise ValueError('a dict of groups and their weights, such as {"acme": 5}')
    try:
        return {name: weight(each) for name, each in value.items()}
    except ValueError as bad:
        raise ValueError(f"weights, each {bad}") from None


def paths(value: Any) -> tuple[str, ...]:
    """Accept the path of a callable, or a list of paths."""
    given = (value,) if isinstance(value, str) else value
    is_list = isinstance(given, (list, tuple)) and all(isinstance(path, str) for path in given)
    if not is_list or not all("." in path and path.replace(".", "_").isidentifier() for path in given):
        raise ValueError('the path of a callable, or a list of them, such as ["shop.alerts.mail"]')
    return tuple(given)


def version(value: Any) -> str:
    """Accept the version of the project that runs."""
    if not isinstance(value, str) or len(value) > 50 or not value.isprintable():
        raise ValueError("a short text, at most 50 characters in one line, such as a release or a commit")
    return value


def period(value: Any) -> timedelta:
    """Accept seconds or a timedelta, at least one second; return a timedelta."""
    return timedelta(seconds=seconds(1)(value))


@dataclass(frozen=True, slots=True)
class Thresholds:
    """When a queue is not healthy."""

    age: float | None = 300.0
    """The seconds that the oldest ready job may wait; None: any."""
    depth: int | None = None
    """How many jobs may be ready; None: any."""
    workers: int = 1
    """How many workers must claim its jobs."""


_OF_THRESHOLDS: dict[str, Callable[[Any], Any]] = {
    "age": seconds(0), "depth": whole(0, 1_000_000), "workers": whole(0, 10_000),
}  # fmt: skip


def thresholds(value: Any) -> dict[str, Thresholds]:
    """Accept a dict of queues (``"*"`` for all others) and their thresholds. A queue has those of ``"*"``
    that it does not set itself.
    """
    shape = '{"*": {"age": 300}, "mail": {"age": 60, "workers": 2}}'
    if not isinstance(value, Mapping) or not all(isinstance(name, str) and name for name in value):
        raise ValueError(f"a dict of queues, such as {shape}")
    others = _thresholds("*", value.get("*", {}), Thresholds())
    return {name: _thresholds(name, given, others) for name, given in value.items()}


def _thresholds(queue: str, given: Any, others: Thresholds) -> Thresholds:
    if not isinstance(given, Mapping):
        raise ValueError(f"a dict of thresholds for each queue, and {queue!r} has {given!r}")
    values = asdict(others)
    for name, value in given.items():
        if name not in _OF_THRESHOLDS:
            near = get_close_matches(str(name), _OF_THRESHOLDS, n=1)
            known = ", ".join(field.name for field in fields(Thresholds))
            hint = f"did you mean {near[0]!r}?" if near else f"the thresholds are {known}"
            raise ValueError(f"no threshold {name!r}, which {queue!r} has; {hint}")
        if value is None and name != "workers":
            values[name] = None
            continue
        try:
            values[name] = _OF_THRESHOLDS[name](value)
        except ValueError as bad:
            raise ValueError(f"as {name!r} of {queue!r} {bad}") from None
    return Thresholds(**values)


def token(value: Any) -> str | None:
    """Accept None, or a secret that cannot be guessed."""
    if value is not None and (not isinstance(value, str) or len(value) < 16 or not value.isascii()):
        raise ValueError("None, or a secret of at least 16 ASCII characters")
    return value


def networks(value: Any) -> tuple[IPv4Network | IPv6Network, ...]:
    """Accept addresses and networks."""
    example = 'a list of addresses and networks, such as ["127.0.0.1", "10.0.0.0/8"]'
    if not isinstance(value, (list, tuple)) or not all(isinstance(each, str) for each in value):
        raise ValueError(example)
    try:
        return tuple(ip_network(each) for each in value)
    except ValueError as bad:
        raise ValueError(f"{example}; {bad}") from None


def queue_or_none(value: Any) -> str | None:
    """Accept None, or the name of a queue."""
    if value is not None and not (isinstance(value, str) and re.fullmatch(r"[A-Za-z0-9_.-]{1,100}", value)):
        raise ValueError("None, or the name of a queue: 1 to 100 letters, digits, '_', '-' or '.'")
    return value


def modules(value: Any) -> tuple[str, ...]:
    """Accept names of modules in the apps."""
    names = [str(name) for name in value] if isinstance(value, (list, tuple)) else []
    if not names or not all(part.isidentifier() for part in ".".join(names).split(".")):
        raise ValueError('names of modules in the apps, such as ["tasks", "jobs"]')
    return tuple(value)
