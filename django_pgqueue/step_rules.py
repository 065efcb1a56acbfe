"""Check the name of a step, a sleep or a signal. They share one namespace in a job."""

from __future__ import annotations

from typing import Any

__all__ = ["MOST_STEPS", "step_name"]

MOST_STEPS = 1000
"""How many steps, sleeps and signals a job may have."""

_LONGEST = 100


def step_name(where: str, name: Any) -> str:
    """Return ``name``. Raise TypeError or ValueError unless it is a text of 1 to 100 characters."""
    if not isinstance(name, str):
        raise TypeError(f"{where} takes a name as its first argument, not {name!r}.")
    if not 0 < len(name) <= _LONGEST or "\0" in name or not name.isprintable():
        raise ValueError(f"{where}: a name has 1 to {_LONGEST} printable characters, not {name!r}.")
    return str(name)
