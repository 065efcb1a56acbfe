"""Run a program that ends as soon as its parent process does: ``python leash.py PARENT PROGRAM ARGUMENTS``.

The harness kills an adapter with SIGKILL, and its worker has to die with it: a worker that continued would
work together with the one that the restarted adapter starts. Only Linux can do this. Elsewhere the program
runs without a leash.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Sequence

PR_SET_PDEATHSIG = 1  # of linux/prctl.h; it stays set when another program is executed


def leashed(command: Sequence[str]) -> list[str]:
    """Return a command that runs ``command`` until this process ends. Use it on the main thread: the kernel
    takes the end of the thread that has started a process for the end of its parent.
    """
    return [sys.executable, "-I", "-S", __file__, str(os.getpid()), *command]


def main(parent: str, *command: str) -> None:
    """Ask the kernel for the signal, and become the program."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL))
    if os.getppid() != int(parent):  # it died before the kernel was asked
        raise SystemExit(1)
    os.execvp(command[0], command)  # noqa: S606 - there is no shell


if __name__ == "__main__":
    main(*sys.argv[1:])
