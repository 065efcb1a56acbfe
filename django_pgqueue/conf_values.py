"""How the values of settings are read. A ValueError says what is accepted."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from datetime import timedelta
from difflib import get_close_matches
from typing import Any

__all__ = [
    "BUILT_IN", "HUNDRED_YEARS", "capture_levels", "context_names", "log_level", "period", "seconds",
    "timeout", "whole",
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


def period(value: Any) -> timedelta:
    """Accept seconds or a timedelta, at least one second; return a timedelta."""
    return timedelta(seconds=seconds(1)(value))
