"""Count the signals that request a stop: the second request ends the grace period.

SIGHUP, which a closing terminal sends, counts once and never as the second request: the shell and the kernel
may both send it, and systemd may send it together with SIGTERM. It stays ignored under nohup.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...formatting import counted

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType


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


# ----------------------------------------------------------------------------
# Messages for a user who stops the supervisor: what it waits for, how long, and how to stop it at once.

MOST_NAMED = 3  # jobs in one line


@dataclass(frozen=True, slots=True)
class RunningJobs:
    """The jobs that are running when the worker is stopped."""

    count: int | None
    """None if the number is not known."""
    names: tuple[str, ...] = ()

    @classmethod
    def of(cls, begun: list[int] | None, named: list[tuple[str, float]] | None) -> RunningJobs:
        """Combine what is known about them. ``begun``: ids from the shared memory; None if there were too
        many to record. ``named``: the task and the age in seconds of each job that still runs, from the
        database; None if it did not answer.
        """
        if begun is None:
            return cls(None)
        if named is None:
            return cls(len(begun), tuple(f"job {job}" for job in begun))
        return cls(len(named), tuple(f"{path} {age:.0f} s" for path, age in named))

    def __str__(self) -> str:
        if self.count is None:
            return "the running jobs"
        names = list(self.names[:MOST_NAMED])
        if self.count > len(names):
            names.append(f"and {self.count - len(names)} more")
        jobs = counted(self.count, "running job")
        return f"{jobs} ({', '.join(names)})" if names else jobs

    @property
    def them(self) -> str:
        """The pronoun for these jobs."""
        return "it" if self.count == 1 else "them"


def stopping(running: RunningJobs, grace: float, number: signal.Signals | None) -> str:
    """Return the message for the first request to stop; ``number`` is its signal, if any."""
    if running.count == 0:
        return "Stopping: no jobs are running."
    if not grace:
        return f"Stopping now, without a grace period. {_requeued(running)}"
    hint = f" {again} to stop {running.them} now." if (again := _again(number)) else ""
    return f"Stopping: waiting up to {grace:g} s for {running}.{hint}"


def giving_up(running: RunningJobs) -> str:
    """Return the message for the second request."""
    return "Stopping now." if running.count == 0 else f"Stopping now. {_requeued(running)}"


def _requeued(running: RunningJobs) -> str:
    start_over = "is requeued and starts" if running.count == 1 else "are requeued and start"
    text = f"{running} {start_over} over later."
    return text[0].upper() + text[1:]


def _again(number: signal.Signals | None) -> str:
    if number == signal.SIGINT:
        return "Press Ctrl-C again"
    # SIGHUP means that the terminal is gone, and it does not count as the first of two requests.
    return "" if number in {None, signal.SIGHUP} else "Send the signal again"
