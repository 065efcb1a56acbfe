"""The signals that ask a process to stop, counted: the second request ends the grace.

SIGHUP, from a terminal that closes, counts once and never as the second request: the shell and the kernel may
both send it, and systemd may send it together with SIGTERM. It stays ignored under nohup.
"""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

__all__ = ["StopSignals"]


class StopSignals:
    """Counts the requests. Everything here is safe in a signal handler."""

    def __init__(self, asked: Callable[[], None]) -> None:
        self._asked = asked
        self._requests = 0
        self._hung_up = False
        self.last: signal.Signals | None = None
        """The signal that asked last; None: none has, or ``ask`` was called without one."""
        self._before: dict[signal.Signals, Any] = {}

    @property
    def count(self) -> int:
        """How often we were asked to stop."""
        return self._requests or int(self._hung_up)

    def ask(self, number: signal.Signals | None = None) -> None:
        """Ask as SIGTERM does; ``number`` is the signal that has arrived, if one has."""
        self.last = number
        self._requests += 1
        self._asked()

    def catch(self, *numbers: signal.Signals) -> None:
        """From now on these signals ask, and SIGHUP. On the main thread."""

        def ask(number: int, frame: FrameType | None) -> None:
            self.ask(signal.Signals(number))

        def hang_up(number: int, frame: FrameType | None) -> None:
            self._hung_up = True
            self.last = self.last or signal.SIGHUP
            self._asked()

        for number in numbers:
            self._handle(number, ask)
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            self._handle(signal.SIGHUP, hang_up)

    def notice(self, number: signal.Signals) -> None:
        """From now on this signal ends a sleep and asks for nothing. On the main thread."""
        self._handle(number, lambda number, frame: self._asked())

    def release(self) -> None:
        """Give back the handlers that were there before: the command may have been called by a program."""
        while self._before:
            number, handler = self._before.popitem()
            # None: it was not set from Python, and cannot be set again.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def _handle(self, number: signal.Signals, handler: Callable[[int, FrameType | None], None]) -> None:
        before = signal.signal(number, handler)
        self._before.setdefault(number, before)
