"""Keys of a terminal, one by one, without waiting for Enter."""

from __future__ import annotations

import os
import re
import select
import sys
import termios
import time
import tty
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["keys"]

#: What an arrow or a function key sends, which means nothing here.
_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|O.|.)?", re.DOTALL)


@contextmanager
def keys() -> Iterator[Callable[[float], str]]:
    """Yield a function that waits for a key for some seconds, and returns it; empty if there was none.

    The terminal is as before at the end, whatever happens. At the end of the input, it returns "q". If the
    input is not a terminal, there are no keys.
    """
    if not sys.stdin.isatty():
        yield _wait
        return
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)

    typed: list[str] = []

    def read(seconds: float) -> str:
        if not typed and select.select([descriptor], [], [], seconds)[0]:
            found = os.read(descriptor, 64).decode("ascii", "ignore")
            if not found:
                return "q"
            typed.extend(_SEQUENCE.sub("", found))
        return typed.pop(0) if typed else ""

    tty.setcbreak(descriptor, termios.TCSADRAIN)  # keys that were pressed before count, too
    try:
        yield read
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def _wait(seconds: float) -> str:
    time.sleep(seconds)
    return ""
