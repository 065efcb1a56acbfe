"""The link between a process and the one that started it: a pair of sockets, and on Linux a death signal.

The supervisor sends nothing on the link; the end of the link shows that the supervisor is gone. The worker
process sends one message when it ends: that it ended as intended, or which error ended it. Its exit code
alone is not enough: a task that calls ``os._exit(0)`` ends the process as well, and only the process itself
can name a module that failed to import.

On Linux a process dies at the same moment as the one that started it, whatever it does (``die_with``).
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import traceback
from contextlib import suppress
from dataclasses import dataclass

from ...encoding import whole_number

LONGEST_CAUSE = 1_000  # characters
PR_SET_PDEATHSIG = 1  # of linux/prctl.h


@dataclass(frozen=True, slots=True)
class Farewell:
    """The last message of a process; empty if it could not send one."""

    code: int | None = None
    """The exit code with which it intended to end after its work was done."""
    cause: str = ""
    """The exception that ended it."""


class ParentLink:
    """A worker process's end of the link."""

    def __init__(self, file: int) -> None:
        self.file = file
        """The file descriptor of the link."""
        self._owner = os.getpid()
        self._spoken = False

    @classmethod
    def from_standard_input(cls) -> ParentLink:
        """Take the link, which is passed as standard input, and move it to another descriptor."""
        return cls(take_standard_input())

    def wait_for_end(self) -> None:
        """Return when the supervisor is gone."""
        with suppress(OSError):  # it ended before it had read our message
            while os.read(self.file, 1024):
                pass

    def finished(self, code: int) -> None:
        """Report that the work is done, and with which exit code this process will end."""
        self._say(f"exit {code}")

    def failed(self, error: BaseException) -> None:
        """Report the exception that ends this process."""
        lines = traceback.format_exception_only(error)
        cause = " ".join("".join(lines).split())
        self._say(f"failed {cause[:LONGEST_CAUSE]}")

    def _say(self, words: str) -> None:
        # Only once, and only in this process: a process that a task has forked must not send anything.
        if os.getpid() == self._owner and not self._spoken:
            self._spoken = True
            with suppress(OSError):  # nobody listens
                os.write(self.file, words.encode(errors="replace"))


def has_spoken(line: socket.socket) -> bool:
    """Return whether the process at the other end has sent its last message."""
    try:
        return bool(line.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT))
    except OSError:  # it has not
        return False


def last_words(line: socket.socket) -> Farewell:
    """Return the last message of the process at the other end, which has ended."""
    line.setblocking(False)
    words = ""
    with suppress(OSError):  # there is no message, and a process that it started still holds its end open
        words = line.recv(65536).decode(errors="replace")
    kind, _, rest = words.partition(" ")
    if kind == "exit" and (code := whole_number(rest)) is not None:
        return Farewell(code=code)
    return Farewell(cause=rest)


def take_standard_input() -> int:
    """Move the current standard input to a new descriptor and return it. Standard input is empty afterwards.

    A program that a task starts and that reads commands from there, as ffmpeg does, must not wait forever,
    and must not read what is meant for this process.
    """
    taken = os.dup(0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    return taken


def die_with(parent: int) -> None:
    """On Linux, have this process killed when ``parent``, the process that started it, ends.

    Call this before anything that takes time. The kernel ties it to the *thread* of the parent that started
    this process, so that thread must live as long as the parent does. It is not inherited by processes that a
    task starts.
    """
    if sys.platform != "linux":
        return
    try:
        import ctypes

        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL))
    except (ImportError, OSError, AttributeError):  # a Python without ctypes, a libc without prctl
        return
    # Race: the parent may have died before that call, so that this process already has another parent.
    if os.getppid() != parent:
        os._exit(1)
