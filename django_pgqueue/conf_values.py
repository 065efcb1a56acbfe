"""How the settings CONTEXT and CAPTURE_LOGS are read. A ValueError says what is accepted."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

__all__ = ["BUILT_IN", "capture_levels", "context_names", "log_level"]

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
