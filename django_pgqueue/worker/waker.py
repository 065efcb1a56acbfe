"""The sleep of a main loop, and what ends it: other threads, files, and signals that request a stop."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any


class Waker:
    """A sleep on a pipe, which any thread can end.

    Race: news may arrive between the last look and the sleep, so the sleeper sets its flag first, then looks
    once more, and then sleeps. A thread with news stores it where the sleeper looks, and then reads the flag.
    """

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)
        self._asleep = False

    def wake(self) -> None:
        """End the sleep, if there is one. This is cheap otherwise."""
        if self._asleep:
            self.interrupt()

    def interrupt(self) -> None:
        """End the current or the next sleep. This is safe in a signal handler."""
        with suppress(BlockingIOError):  # the pipe is full of wake-ups already
            os.write(self._write, b"!")

    def sleep(self, seconds: float, has_news: Callable[[], bool], *files: int) -> None:
        """Sleep until woken, until one of ``files`` is readable, or until ``seconds`` have passed."""
        self._asleep = True
        try:
            if not has_news():
                poll = select.poll()  # unlike epoll, it needs no system calls to set up
                for file in (self._read, *files):
                    poll.register(file, select.POLLIN)
                ready = [file for file, _ in poll.poll(max(0.0, seconds) * 1000)]
                if self._read in ready:
                    os.read(self._read, 4096)
        finally:
            self._asleep = False

    def files(self) -> tuple[int, int]:
        """Return the two ends of the pipe."""
        return self._read, self._write

    def close(self) -> None:
        """Close the pipe."""
        os.close(self._read)
        os.close(self._write)


class StopSignals:
    """Counts the signals that request a stop: the second one ends the grace period.

    SIGHUP, which a closing terminal sends, counts once and never as the second request: the shell and the
    kernel may both send it, and systemd may send it together with SIGTERM. It stays ignored under nohup.
    ``asked`` is called in the signal handlers, as is ``ask``.
    """

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
        """Request a stop as SIGTERM does; a second call ends the grace period. Safe in a signal handler.
        ``number``: the signal that has arrived, if any.
        """
        if number == signal.SIGHUP:
            self._hung_up = True
            self.last = self.last or number
        else:
            self.last = number
            self._requests += 1
        self._asked()

    def catch(self, *numbers: signal.Signals) -> None:
        """From now on, these signals and SIGHUP request a stop. Call this on the main thread."""
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            numbers = (*numbers, signal.SIGHUP)
        for number in numbers:
            self._handle(number, lambda number, _: self.ask(signal.Signals(number)))

    def notice(self, number: signal.Signals) -> None:
        """From now on, this signal ends a sleep but does not request a stop. Call this on the main thread."""
        self._handle(number, lambda _number, _: self._asked())

    def release(self) -> None:
        """Restore the previous handlers, because a program may have called the command."""
        while self._before:
            number, handler = self._before.popitem()
            # None: the handler was not set from Python, so it cannot be restored.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def _handle(self, number: signal.Signals, handler: Callable[[int, FrameType | None], None]) -> None:
        self._before.setdefault(number, signal.signal(number, handler))
