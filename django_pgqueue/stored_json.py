"""Read JSON that somebody has stored by SQL. PostgreSQL stores some JSON that Python does not read.

Calls in Python refuse it. It may still come from SQL, or from a worker in another language, and then the rest
of the row is to be shown.
"""

from __future__ import annotations

import json
from typing import Any

__all__ = ["TOO_DEEP", "load"]

TOO_DEEP = "<nested too deeply to be shown>"
"""Stands for a value."""
MOST_DIGITS = 4_000
"""Python reads whole numbers with at most 4,300 digits."""


def load(text: str | bytes) -> Any:
    """Return the value. A text stands for a number that is too long, and for a value that is too deep."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        pass
    try:
        return json.loads(text, parse_int=_whole)
    except RecursionError:
        return TOO_DEEP


def _whole(digits: str) -> int | str:
    return int(digits) if len(digits) <= MOST_DIGITS else f"<a number with {len(digits):,} digits>"
