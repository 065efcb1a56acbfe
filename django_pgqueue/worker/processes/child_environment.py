"""The environment of the processes that a worker starts."""

from __future__ import annotations

import os
import sys
from pathlib import Path

__all__ = ["child_environment"]


def child_environment() -> dict[str, str]:
    """Ours, with the path by which this process finds the project's modules, whatever started it."""
    # An empty entry means the working directory of whoever reads it; a task may have changed ours since.
    path = os.pathsep.join(entry or _HERE for entry in sys.path)
    return {**os.environ, "PYTHONPATH": path}


_HERE = str(Path.cwd())
