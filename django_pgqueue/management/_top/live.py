"""The loop of ``top``: a thread looks at the queue, and this one draws and listens to the keys.

So ``q`` works at once while the database takes its time, and so does a new size of the window.
"""

from __future__ import annotations

import os
import re
import select
import signal
import sys
import termios
import threading
import time
import tty
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from django.db import connections

from .drawing import View, picture
from .panes import read

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Self

    from .._output import Marks
    from .drawing import Line
    from .panes import Reading

_TICK = 0.2  # seconds until a new look or a new size is noticed


class Screen(Protocol):
    """What draws."""

    marks: Marks

    def __enter__(self) -> Self: ...

    def __exit__(self, *error: object) -> None: ...

    def size(self) -> tuple[int, int]:
        """Return the columns and the lines."""

    def draw(self, lines: Sequence[Line]) -> None:
        """Show these lines in place of those before."""


class _Poller(threading.Thread):
    """Looks at the queue, again and again, on a connection of its own."""

    def __init__(self, alias: str, interval: float) -> None:
        super().__init__(name="pgqueue-top", daemon=True)
        self._alias = alias
        self._interval = interval
        self._wake = threading.Event()
        self._is_over = False
        self.is_paused = False
        self.now: Reading | None = None
        self.last: Reading | None = None
        """The newest look that has not failed."""
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            while not self._is_over:
                if not self.is_paused or self.now is None:
                    found = read(self._alias)
                    if not found.error or self.last is None:
                        self.last = found
                    self.now = found
                self._wake.wait(self._interval)
                self._wake.clear()
        except BaseException as error:  # the loop raises it
            self.failure = error
        finally:
            connections[self._alias].close()

    def look(self) -> None:
        """Look now."""
        self._wake.set()

    def end(self) -> None:
        """Look no more."""
        self._is_over = True
        self._wake.set()


def watch(alias: str, interval: float, screen: Screen) -> None:
    """Draw until ``q``, Ctrl-C or SIGTERM."""
    poller, view = _Poller(alias, interval), View()
    poller.start()
    try:
        with _terminable(), screen, keys() as key:
            _draw_and_listen(poller, view, screen, key)
    except KeyboardInterrupt:
        pass
    finally:
        poller.end()
    if poller.failure is not None:
        raise poller.failure


def _draw_and_listen(poller: _Poller, view: View, screen: Screen, key: Callable[[float], str]) -> None:
    drawn: object = None
    is_changed = False
    while poller.failure is None:
        now, last, size = poller.now, poller.last, screen.size()
        if now is not None and last is not None and (is_changed or drawn != (id(now), size)):
            screen.draw(picture(now, last, view, size, screen.marks))
            drawn = (id(now), size)
        pressed = key(_TICK)
        if pressed == "q":
            return
        is_changed = view.press(pressed)
        poller.is_paused = view.is_paused
        if pressed == "r" or (pressed == "p" and not view.is_paused):
            poller.look()


@contextmanager
def _terminable() -> Iterator[None]:
    """Let SIGTERM end the loop as Ctrl-C does, so that the terminal is restored."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


# ----------------------------------------------------------------------------
# Keys of a terminal, one by one, without waiting for Enter.

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
