"""What ties a process to the one that started it: a pair of sockets, and on Linux its death.

The supervisor says nothing on the link; its end shows that the supervisor is gone. The worker process speaks
once, when it ends: that it meant to, or what kept it from its work. Its exit code alone would not do: a task
that calls ``os._exit(0)`` ends the process as well, and a module that fails at import can only be named from
inside.

On Linux a process dies with the one that started it, in the same instant, whatever it does (``die_with``).
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import socket

__all__ = ["Farewell", "ParentLink", "die_with", "last_words", "take_standard_input"]

LONGEST_CAUSE = 1_000  # characters
PR_SET_PDEATHSIG = 1  # of linux/prctl.h


@dataclass(frozen=True, slots=True)
class Farewell:
    """What a process has said at its end; nothing, if it could not."""

    code: int | None = None
    """The exit code with which it meant to end, its work being done."""
    cause: str = ""
    """The exception that ended it."""


class ParentLink:
    """A worker process's end of the link."""

    def __init__(self, file: int) -> None:
        self.file = file
        """Its number."""
        self._owner = os.getpid()
        self._spoken = False

    @classmethod
    def from_standard_input(cls) -> ParentLink:
        """The link comes as standard input, and is moved away from there."""
        return cls(take_standard_input())

    def wait_for_end(self) -> None:
        """Return when the supervisor is gone."""
        with suppress(OSError):  # it went before it had read what we said
            while os.read(self.file, 1024):
                pass

    def finished(self, code: int) -> None:
        """Say that the work is done, and with which exit code this process will end."""
        self._say(f"exit {code}")

    def failed(self, error: BaseException) -> None:
        """Say what ends this process."""
        lines = traceback.format_exception_only(error)
        cause = " ".join("".join(lines).split())
        self._say(f"failed {cause[:LONGEST_CAUSE]}")

    def _say(self, words: str) -> None:
        # Once, and only for ourselves: what a task has forked is another process.
        if os.getpid() == self._owner and not self._spoken:
            self._spoken = True
            with suppress(OSError):  # nobody listens
                os.write(self.file, words.encode(errors="replace"))


def last_words(line: socket.socket) -> Farewell:
    """What the process at the other end, which has ended, has said."""
    line.setblocking(False)
    words = ""
    with suppress(OSError):  # nothing, and something that it started still holds its end
        words = line.recv(65536).decode(errors="replace")
    kind, _, rest = words.partition(" ")
    if kind == "exit" and rest.isdigit():
        return Farewell(code=int(rest))
    return Farewell(cause=rest)


def take_standard_input() -> int:
    """Another number for what is standard input now, which is empty afterwards.

    A program that a task starts and that looks for commands there, as ffmpeg does, must not wait for ever,
    nor hear what is meant for us.
    """
    taken = os.dup(0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    return taken


def die_with(parent: int) -> None:
    """Be killed when the process ``parent``, which has started this one, ends. Elsewhere: nothing happens.

    To be called before anything that takes time. The kernel ties this to the *thread* of the parent that
    started us, so that thread must last as long as the parent does. It is not inherited: what a task starts
    must see to itself.
    """
    if sys.platform != "linux":
        return
    try:
        import ctypes

        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL))
    except (ImportError, OSError, AttributeError):  # a Python without ctypes, a libc without prctl
        return
    # Race: the parent may have died before that call, and we have been handed on to another process.
    if os.getppid() != parent:
        os._exit(1)
