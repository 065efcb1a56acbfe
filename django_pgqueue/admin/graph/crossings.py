"""The order of the nodes in each column, with few crossings of arrows.

The barycenter heuristic of Sugiyama, Tagawa and Toda (1981): each node is placed at the mean place of its
neighbors in the column before it, or after it. The sweeps go forward and back in turn. Their number is fixed,
and the best order of all sweeps is kept.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["crossings", "ordered"]

_SWEEPS = 12


def ordered(
    columns: Sequence[Sequence[int]], before: Mapping[int, Sequence[int]], after: Mapping[int, Sequence[int]]
) -> list[list[int]]:
    """Return the columns with their nodes in a good order. The neighbors of a node are in the next column."""
    current = [list(column) for column in columns]
    best, fewest = [list(column) for column in columns], crossings(columns, after)
    for sweep in range(_SWEEPS):
        if not fewest:
            break
        if sweep % 2:
            for fixed, free in zip(current[:0:-1], current[-2::-1], strict=True):
                _sort(free, fixed, after)
        else:
            for fixed, free in pairwise(current):
                _sort(free, fixed, before)
        count = crossings(current, after)
        if count < fewest:
            best, fewest = [list(column) for column in current], count
    return best


def _sort(free: list[int], fixed: list[int], neighbors: Mapping[int, Sequence[int]]) -> None:
    """Sort a column by the places of the neighbors. A node without neighbors keeps its place."""
    places = {node: place for place, node in enumerate(fixed)}
    wanted: dict[int, float] = {}
    for place, node in enumerate(free):
        found = [places[neighbor] for neighbor in neighbors[node]]
        wanted[node] = sum(found) / len(found) if found else place
    free.sort(key=wanted.__getitem__)


def crossings(columns: Sequence[Sequence[int]], after: Mapping[int, Sequence[int]]) -> int:
    """Return how many pairs of arrows between neighboring columns cross."""
    count = 0
    for left, right in pairwise(columns):
        places = {node: place for place, node in enumerate(right)}
        ends: list[int] = []  # of the arrows that start further up, sorted
        for node in left:
            own = sorted(places[child] for child in after[node])
            count += sum(len(ends) - bisect_right(ends, end) for end in own)
            for end in own:
                insort(ends, end)
    return count
