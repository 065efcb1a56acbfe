"""Messages for a user who stops the supervisor: what it waits for, how long, and how to stop it at once."""

from __future__ import annotations

import signal
from dataclasses import dataclass

from ...wording import counted

__all__ = ["RunningJobs", "giving_up", "stopping"]

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
        return f"{counted(self.count, 'running job')} ({', '.join(names)})"

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
