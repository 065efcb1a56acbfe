"""Count the signals that request a stop: the second request ends the grace period.

SIGHUP, which a closing terminal sends, counts once and never as the second request: the shell and the kernel
may both send it, and systemd may send it together with SIGTERM. It stays ignored under nohup.
"""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

__all__ = ["StopSignals"]


class StopSignals:
    """Counts the requests. All methods are safe to call in a signal handler."""

    def __init__(self, asked: Callable[[], None]) -> None:
        self._asked = asked
        self._requests = 0
        self._hung_up = False
        self.last: signal.Signals | None = None
        """The signal of the last request; None if there was none, or if ``ask`` was called without one."""
        self._before: dict[signal.Signals, Any] = {}

    @property
    def count(self) -> int:
        """How many requests there were."""
        return self._requests or int(self._hung_up)

    def ask(self, number: signal.Signals | None = None) -> None:
        """Request a stop as SIGTERM does; ``number`` is the signal that has arrived, if any."""
        self.last = number
        self._requests += 1
        self._asked()

    def catch(self, *numbers: signal.Signals) -> None:
        """From now on, these signals and SIGHUP request a stop. Call this on the main thread."""

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
        """From now on, this signal ends a sleep but does not request a stop. Call this on the main thread."""
        self._handle(number, lambda number, frame: self._asked())

    def release(self) -> None:
        """Restore the previous handlers, because a program may have called the command."""
        while self._before:
            number, handler = self._before.popitem()
            # None: the handler was not set from Python, so it cannot be restored.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def _handle(self, number: signal.Signals, handler: Callable[[int, FrameType | None], None]) -> None:
        before = signal.signal(number, handler)
        self._before.setdefault(number, before)
