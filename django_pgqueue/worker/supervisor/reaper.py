"""Reap orphans: the first process of a container becomes the parent of processes whose parent has ended.

In Kubernetes, the worker is this first process unless the image has an init process. A task that starts a
browser leaves some processes behind each time. If they are not reaped, they count against the process limit
of the container forever.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Container

__all__ = ["is_init", "reap_orphans"]


def is_init() -> bool:
    """Return whether this is the first process of the system or of its container."""
    return os.getpid() == 1


def reap_orphans(own: Container[int | None]) -> None:
    """Reap all processes that have ended except ``own``, because the supervisor reads their exit codes."""
    while True:
        try:
            found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:  # there are no child processes
            return
        # waitid() shows one ended process at a time. If it is one of our own, the others wait until the next
        # turn, which handles it first.
        if found is None or found.si_pid in own:
            return
        with suppress(ChildProcessError):
            os.waitpid(found.si_pid, 0)
