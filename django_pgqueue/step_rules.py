"""The rules for the steps of a job: their names, which sleeps and signals share, their number and results."""

from __future__ import annotations

from typing import Any

from . import conf
from .exceptions import PayloadError, StepError
from .payload import encode_result

__all__ = ["HAS_STEPS", "MOST_STEPS", "step_name", "step_result"]

HAS_STEPS = 1
"""The bit of ``Job.marks`` that says so."""

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


def step_result(name: str, value: Any) -> str | None:
    """Return the result of a step as JSON; None for None. Raise StepError if it cannot be recorded."""
    try:
        return encode_result(value, conf.current().max_payload_bytes)
    except PayloadError as error:
        raise StepError(f"The result of the step {name!r} cannot be recorded: {error}") from error
