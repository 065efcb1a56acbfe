"""A file whose age tells whether the supervisor lives, for the liveness probe of a container.

The supervisor writes it from the loop in which it sends the heartbeats and watches its processes, so a
supervisor that hangs does not write it. Its text says how many processes work, and whether there is a
connection. A probe should look at the age only: a restart does not help if the server is away.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

__all__ = ["AliveFile"]

logger = logging.getLogger(__name__)

EVERY = 5.0  # seconds


class AliveFile:
    """The file at a path; without a path, nothing is written."""

    def __init__(self, path: str) -> None:
        self._path = Path(path) if path else None
        self._next_sign = 0.0
        self._has_failed = False

    @property
    def next_sign(self) -> float:
        """When the file must be written next; ``inf`` without one."""
        return self._next_sign if self._path else float("inf")

    def sign(self, now: float, text: str) -> None:
        """Write the file if it is time."""
        if self._path is None or now < self._next_sign:
            return
        self._next_sign = now + EVERY
        # Renamed, so that a probe never reads an empty file.
        beside = self._path.with_name(f"{self._path.name}.{os.getpid()}")
        try:
            beside.write_text(f"{text}\n", encoding="utf-8")
            beside.replace(self._path)
            self._has_failed = False
        except OSError as error:
            if not self._has_failed:
                self._has_failed = True
                logger.error("cannot write the file that shows that the worker lives: %s", error)

    def remove(self) -> None:
        """Remove the file, because the supervisor ends."""
        if self._path is None:
            return
        try:
            self._path.unlink(missing_ok=True)
        except OSError as error:
            logger.warning("cannot remove %s: %s", self._path, error)
