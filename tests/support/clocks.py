"""Commands whose wall clock is wrong, by libfaketime, and steps while they run.

Only the wall clock is wrong. The monotonic clock, which waits and timeouts use, is that of the machine.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

__all__ = ["Clock", "lacks_faketime"]


class Clock:
    """The wall clock of the processes that are started with the variables `env`."""

    def __init__(self, file: Path, seconds: float = 0.0) -> None:
        self._file = file
        self.set(seconds)
        self.env = {
            "LD_PRELOAD": str(_library()),
            "FAKETIME_TIMESTAMP_FILE": str(file),
            "FAKETIME_NO_CACHE": "1",  # so that a step is seen at once
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }

    def set(self, seconds: float) -> None:
        """Let the clock be wrong by so many seconds from now on: ahead, or behind if they are negative."""
        new = self._file.with_suffix(".new")
        new.write_text(f"{seconds:+.0f}\n")
        new.replace(self._file)  # nobody reads half of it


def lacks_faketime() -> str:
    """Return the name of the library if it is missing."""
    return "" if _library() else "libfaketime (python3 dev.py chaos installs it)"


def _library() -> Path | None:
    """Return the library of the package. It is not imported, because that would change this process."""
    found = find_spec("libfaketime")
    if found is None or found.origin is None:
        return None
    path = Path(found.origin).parent / "vendor" / "libfaketime" / "src" / "libfaketime.so.1"
    return path if path.exists() else None
