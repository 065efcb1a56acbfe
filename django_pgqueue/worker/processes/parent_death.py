"""On Linux: a process that dies with the one that started it, in the same instant, whatever it is doing."""

from __future__ import annotations

import os
import signal
import sys

__all__ = ["die_with"]

PR_SET_PDEATHSIG = 1  # of linux/prctl.h


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
