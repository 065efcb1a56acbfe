"""Waiting for an event: tests do not sleep, and one that waits in vain fails."""

from __future__ import annotations

import faulthandler
import time
from collections.abc import Callable
from typing import TypeVar

__all__ = ["DEADLINE", "until"]

DEADLINE = 20.0  # seconds

T = TypeVar("T")


def until(found: Callable[[], T | None], *, seconds: float = DEADLINE, what: str = "") -> T:
    """Ask until the answer is true, and return it; an assertion fails at the deadline."""
    end = time.monotonic() + seconds
    pause = 0.002
    while not (answer := found()):
        if time.monotonic() > end:
            faulthandler.dump_traceback(2)  # where everybody is instead
            raise AssertionError(f"not within {seconds:g} s: {what or found}; the last answer was {answer!r}")
        time.sleep(pause)
        pause = min(1.2 * pause, 0.05)
    return answer
