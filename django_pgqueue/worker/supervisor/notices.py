"""What the supervisor tells a user who stops it: what it waits for, how long, and how to hurry it."""

from __future__ import annotations

import signal
from dataclasses import dataclass

from ...wording import counted

__all__ = ["RunningJobs", "giving_up", "stopping"]

MOST_NAMED = 3  # jobs in one line


@dataclass(frozen=True, slots=True)
class RunningJobs:
    """The jobs that run at the moment of a stop."""

    count: int | None
    """None: nobody knows."""
    names: tuple[str, ...] = ()

    @classmethod
    def of(cls, begun: list[int] | None, named: list[tuple[str, float]] | None) -> RunningJobs:
        """``begun``: ids from the shared memory, None if there were too many to note. ``named``: the task and
        the age in seconds of each that still runs, from the database; None if it did not answer.
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
        return f"{counted(self.count, 'running job')} ({', '.join(names)})"

    @property
    def them(self) -> str:
        """The pronoun."""
        return "it" if self.count == 1 else "them"


def stopping(running: RunningJobs, grace: float, number: signal.Signals | None) -> str:
    """The line at the first request to stop, which came by the signal ``number`` if by any."""
    if running.count == 0:
        return "Stopping: no jobs are running."
    if not grace:
        return f"Stopping at once, without a grace. {_requeued(running)}"
    hint = f" {again} to give {running.them} up." if (again := _again(number)) else ""
    return f"Stopping: waiting up to {grace:g} s for {running}.{hint}"


def giving_up(running: RunningJobs) -> str:
    """The line at the second request."""
    return "Stopping now." if running.count == 0 else f"Stopping now. {_requeued(running)}"


def _requeued(running: RunningJobs) -> str:
    start_over = "is requeued and starts" if running.count == 1 else "are requeued and start"
    text = f"{running} {start_over} over later."
    return text[0].upper() + text[1:]


def _again(number: signal.Signals | None) -> str:
    if number == signal.SIGINT:
        return "Press Ctrl-C again"
    # After SIGHUP the terminal is gone, and it does not count as the first of two requests.
    return "" if number in {None, signal.SIGHUP} else "Send the signal again"
