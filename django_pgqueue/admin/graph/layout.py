"""Where each node and each arrow of a workflow is drawn, in columns from left to right.

The steps are those of Sugiyama, Tagawa and Toda: ``columns``, ``crossings`` and ``heights``. An arrow over
several columns passes a bend in each column between its ends, so that it does not run through a node. There
is no small library in Python for this with a permissive license: grandalf is under the GPL or the EPL.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from .columns import columns
from .crossings import ordered
from .heights import heights

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, Iterable, Sequence

__all__ = ["MOST_BENDS", "Layout", "Place", "layout"]

K = TypeVar("K", bound="Hashable")

#: If the arrows of a drawing would need more bends than this, the longest of them have none.
MOST_BENDS = 3_000
#: The height of a bend, where that of a node is 1.
_BEND = 0.35


class Place(NamedTuple):
    """The middle of a node or of a bend: the number of its column, and how many nodes fit above it."""

    column: int
    height: float


@dataclass(frozen=True, slots=True)
class Layout(Generic[K]):
    """A drawing in columns and heights, without pixels."""

    places: dict[K, Place]
    routes: dict[tuple[K, K], list[Place]]
    """The places on the way of each arrow, with those of both nodes."""

    @property
    def width(self) -> int:
        """The number of columns."""
        return max((place.column + 1 for place in self.places.values()), default=0)

    @property
    def height(self) -> float:
        """The height of the highest column."""
        bends = (place for route in self.routes.values() for place in route[1:-1])
        low = max((place.height + 0.5 for place in self.places.values()), default=0.0)
        return max(low, max((bend.height + _BEND / 2 for bend in bends), default=0.0))


def layout(nodes: Iterable[K], arrows: Iterable[tuple[K, K]]) -> Layout[K]:
    """Return the layout of a graph, without arrows to other nodes, and from a node to itself."""
    keys = list(dict.fromkeys(nodes))
    numbers = {key: number for number, key in enumerate(keys)}
    drawn = [
        (numbers[parent], numbers[child])
        for parent, child in dict.fromkeys(arrows)
        if parent in numbers and child in numbers and parent != child
    ]
    column = columns(range(len(keys)), drawn)
    sizes = dict.fromkeys(column, 1.0)
    ways = _ways(column, sizes, drawn)

    stacks: list[list[int]] = [[] for _each in range(max(column.values(), default=-1) + 1)]
    for number in column:
        stacks[column[number]].append(number)
    before: dict[int, list[int]] = defaultdict(list)
    after: dict[int, list[int]] = defaultdict(list)
    for way in ways.values():
        for start, end in pairwise(way):
            left, right = (start, end) if column[start] < column[end] else (end, start)
            if column[right] - column[left] == 1:
                after[left].append(right)
                before[right].append(left)
    stacks = ordered(stacks, before, after)
    height = heights(stacks, before, after, sizes)

    def place(number: int) -> Place:
        return Place(column[number], height[number])

    return Layout(
        {key: place(number) for key, number in numbers.items()},
        {(keys[way[0]], keys[way[-1]]): [place(number) for number in way] for way in ways.values()},
    )


def _ways(
    column: dict[int, int], sizes: dict[int, float], arrows: Collection[tuple[int, int]]
) -> dict[tuple[int, int], Sequence[int]]:
    """Add the bends of all arrows to ``column`` and ``sizes``. Return the numbers that each one passes."""
    ways: dict[tuple[int, int], Sequence[int]] = {arrow: arrow for arrow in arrows}
    left = MOST_BENDS
    for start, end in sorted(arrows, key=lambda arrow: abs(column[arrow[1]] - column[arrow[0]])):
        step = 1 if column[end] > column[start] else -1
        between = range(column[start] + step, column[end], step)
        left -= len(between)
        if left < 0:
            break
        bends = range(len(column), len(column) + len(between))
        column.update(zip(bends, between, strict=True))
        sizes.update(dict.fromkeys(bends, _BEND))
        ways[start, end] = [start, *bends, end]
    return ways
