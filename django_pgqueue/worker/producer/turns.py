"""In which order a claim reads the ranges: by priority, and in turn among the queues of one priority.

A queue with a weight comes first as often as its weight says: of three queues with the weights 6, 3 and
1, the first one comes first in six of ten claims. They are mixed as evenly as possible ("smooth weighted
round robin", as in nginx): each queue gains its weight with each claim, and the one with the most comes
first and pays the sum of all weights.

With ageing, jobs that have waited for a while count as jobs of a higher priority. A mark tells how long the
first job of a range has waited.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

__all__ = ["Key", "Turns"]

Key = tuple[str, int]
"""A range: a queue and a priority."""


class Turns:
    """The order of the ranges of one worker."""

    def __init__(self, weights: Mapping[str, int] | None = None, ageing: float | None = None) -> None:
        """``weights``: of the queues; others have 1. ``ageing``: the seconds of waiting that count as one
        level of priority."""
        self._weights = weights or {}
        self._ageing = ageing
        self._gained: dict[Key, int] = {}
        self._keys: list[Key] = []
        self._turn = 0

    def know(self, keys: Iterable[Key]) -> None:
        """Replace the ranges."""
        self._keys = sorted(keys, key=lambda key: (-key[1], key[0]))
        self._gained.clear()

    def next(self, waited: Callable[[Key], float]) -> list[Key]:
        """Return the order for the next claim. ``waited``: the seconds that the first job of a range has
        waited."""
        self._turn += 1
        if len(self._keys) < 2:
            return self._keys
        levels: dict[int, list[Key]] = {}
        for key in self._keys:
            levels.setdefault(self._level(key, waited), []).append(key)
        order: list[Key] = []
        for level in sorted(levels, reverse=True) if self._ageing else levels:
            order += self._in_turn(levels[level])
        return order

    def _level(self, key: Key, waited: Callable[[Key], float]) -> int:
        return key[1] if self._ageing is None else key[1] + int(max(0.0, waited(key)) / self._ageing)

    def _in_turn(self, keys: list[Key]) -> list[Key]:
        if len(keys) < 2:
            return keys
        if not any(queue in self._weights for queue, _ in keys):
            start = self._turn % len(keys)
            return keys[start:] + keys[:start]
        weights = {key: self._weights.get(key[0], 1) for key in keys}
        gained = {key: self._gained.get(key, 0) + weights[key] for key in keys}
        order = sorted(keys, key=lambda key: -gained[key])
        gained[order[0]] -= sum(weights.values())
        self._gained.update(gained)
        return order
