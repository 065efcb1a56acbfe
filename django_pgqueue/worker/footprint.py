"""How much memory this process uses."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["resident_memory"]

_STATM = Path("/proc/self/statm")


def resident_memory() -> int | None:
    """Return the bytes of this process that are in memory now; None if the system does not tell, as outside
    Linux.
    """
    try:
        pages = int(_STATM.read_text(encoding="ascii").split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None
