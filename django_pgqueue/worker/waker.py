"""The sleep of a producer or supervisor, on a pipe that other threads and signal handlers write to."""

from __future__ import annotations

import os
import select
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Waker:
    """A sleep that any thread can end.

    Race: news may arrive between the last look and the sleep. So the sleeper sets its flag first, then looks
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
