"""A reading of the database that all who want it within a few seconds share, in this process."""

from __future__ import annotations

from threading import Lock
from time import monotonic
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Shared"]

T = TypeVar("T")


class Shared(Generic[T]):
    """What a function reads from a database, and returns for its alias."""

    def __init__(self, read: Callable[[str], T], seconds: float) -> None:
        self._read = read
        self._seconds = seconds
        self._lock = Lock()
        self._found: dict[str, tuple[float, T]] = {}

    def of(self, alias: str) -> T:
        """Return the reading, if it is fresh, or a new one.

        Race: it gets old for several threads at once. One of them reads, and the others wait for it.
        """
        with self._lock:
            until, found = self._found.get(alias, (0.0, None))
            if found is None or monotonic() >= until:
                found = self._read(alias)
                self._found[alias] = monotonic() + self._seconds, found
            return found

    def forget(self) -> None:
        """Read again, whoever asks next."""
        with self._lock:
            self._found.clear()
