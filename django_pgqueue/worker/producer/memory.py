"""How much memory this process holds."""

from __future__ import annotations

import os
import sys
from pathlib import Path

__all__ = ["resident_megabytes"]


def resident_megabytes() -> float:
    """Resident memory; where there is no /proc, the most that it has been so far."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        import resource

        unit = 1 if sys.platform == "darwin" else 1024  # getrusage counts bytes there, kilobytes elsewhere
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20
