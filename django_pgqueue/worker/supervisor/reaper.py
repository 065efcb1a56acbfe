"""Orphans: the first process of a container inherits those whose parent has ended, and must reap them.

In Kubernetes that is the worker, unless the image brings an init; a task that starts a browser leaves some of
its processes behind each time, which count against the container's limit of processes for ever.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Container

__all__ = ["is_init", "reap_orphans"]


def is_init() -> bool:
    """Whether this is the first process of the system or of its container."""
    return os.getpid() == 1


def reap_orphans(own: Container[int | None]) -> None:
    """Reap all processes that have ended but ``own``, whose exit codes are somebody's business."""
    while True:
        try:
            found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:  # there are none at all
            return
        # One of ours that has ended hides those behind it; it is seen to in the next turn, and then they are.
        if found is None or found.si_pid in own:
            return
        with suppress(ChildProcessError):
            os.waitpid(found.si_pid, 0)
