"""Where each node and each arrow of a workflow is drawn, in columns from left to right.

The steps are those of Sugiyama, Tagawa and Toda: columns, crossings and heights. An arrow over
several columns passes a bend in each column between its ends, so that it does not run through a node. There
is no small library in Python for this with a permissive license: grandalf is under the GPL or the EPL.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import defaultdict, deque
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeAlias, TypeVar

from ...models.job import Status

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence

# ----------------------------------------------------------------------------
# A workflow as it was read: jobs, batches, and which of them waits for which.
#
# A batch waits for its members, so an arrow leads from each member to its batch. A parent that is no longer
# kept has a node, too, because its children still name it.

Key: TypeAlias = "int | tuple[str | int, ...]"
"""The id of a job or a batch, or what the jobs of a folded node have in common."""
#: Members of a batch that are not over, if nobody has looked at them.
LIVE = "live"
#: The states of many jobs, that which matters most first.
MATTERS = (
    Status.FAILED.value, Status.RUNNING.value, LIVE, Status.RETRY.value, Status.PENDING.value,
    Status.BLOCKED.value, Status.CANCELLED.value, Status.DONE.value,
)  # fmt: skip


class Kind(StrEnum):
    """What a node stands for."""

    JOB = "job"
    BATCH = "batch"
    GONE = "gone"
    """A parent that is no longer kept. Nobody knows whether it was a job or a batch."""
    MANY_JOBS = "many jobs"
    MANY_BATCHES = "many batches"


class Arrow(StrEnum):
    """Why the second node waits for the first."""

    AFTER = "after"
    MEMBER = "member"


@dataclass(frozen=True, slots=True)
class Node:
    """A job, a batch, or many of one of them."""

    key: Key
    kind: Kind
    name: str
    """The path of the task, or the name of the batch."""
    counts: Counter[str]
    """The number of jobs in each state; of a batch, of its members."""
    size: int = 1
    """The number of jobs or batches that the node stands for."""
    batch: int | None = None
    """The batch of a job, or that of all jobs."""
    note: str = ""
    is_finished: bool = False

    @property
    def state(self) -> str:
        """The state that matters most of those that occur; empty if there are no jobs."""
        return next((state for state in MATTERS if self.counts[state]), "")

    @property
    def has_failed(self) -> bool:
        """Whether the node is a job that has failed, or a batch that has finished and in which one has."""
        return self.is_finished and self.size == 1 and self.state == Status.FAILED.value


@dataclass(slots=True)
class Workflow:
    """The nodes around one job or batch, and the arrows between them."""

    here: int
    nodes: dict[Key, Node] = field(default_factory=dict)
    arrows: dict[tuple[Key, Key], Arrow] = field(default_factory=dict)
    problem: str = ""
    """Why this is not the whole workflow; empty if it is."""
    seconds: float = 0.0
    """How long it took to read."""

    @property
    def is_finished(self) -> bool:
        """Whether nothing changes any more, unless a user retries or adds a job."""
        return all(node.is_finished for node in self.nodes.values())


# ----------------------------------------------------------------------------
# The place of each node, and the way of each arrow.

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


# ----------------------------------------------------------------------------
# The columns of a drawing: every arrow leads from a column to one further right.
#
# This is the first part of the method of Sugiyama, Tagawa and Toda ("Methods for visual understanding of
# hierarchical system structures", 1981), with the longest path: a node stands one column to the right of the
# last of its parents. A node without parents stands next to the first of its children.
#
# A workflow has no cycles. If one is given nevertheless, one of its arrows leads to the left, and nothing
# hangs.


def columns(nodes: Iterable[K], arrows: Collection[tuple[K, K]]) -> dict[K, int]:
    """Return the column of each node. The arrows are pairs (parent, child) of these nodes."""
    column = dict.fromkeys(nodes, 0)
    children: dict[K, list[K]] = defaultdict(list)
    parents_left = dict.fromkeys(column, 0)
    for parent, child in arrows:
        children[parent].append(child)
        parents_left[child] += 1
    first = [node for node, count in parents_left.items() if not count]

    ready, waiting = deque(first), dict.fromkeys(column)
    while waiting:
        node = ready.popleft() if ready else next(iter(waiting))  # the latter only in a cycle
        del waiting[node]
        for child in children[node]:
            if child in waiting:
                column[child] = max(column[child], column[node] + 1)
                parents_left[child] -= 1
                if not parents_left[child]:
                    ready.append(child)
    for node in first:
        if children[node]:
            column[node] = min(column[child] for child in children[node]) - 1
    return column


# ----------------------------------------------------------------------------
# The order of the nodes in each column, with few crossings of arrows.
#
# The barycenter heuristic of Sugiyama, Tagawa and Toda (1981): each node is placed at the mean place of its
# neighbors in the column before it, or after it. The sweeps go forward and back in turn. Their number is
# fixed, and the best order of all sweeps is kept.

_CROSSING_SWEEPS = 12


def ordered(
    columns: Sequence[Sequence[int]], before: Mapping[int, Sequence[int]], after: Mapping[int, Sequence[int]]
) -> list[list[int]]:
    """Return the columns with their nodes in a good order. The neighbors of a node are in the next column."""
    current = [list(column) for column in columns]
    best, fewest = [list(column) for column in columns], crossings(columns, after)
    for sweep in range(_CROSSING_SWEEPS):
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


# ----------------------------------------------------------------------------
# How far down each node stands in its column, so that arrows are short and straight.
#
# The order of a column is given. Each sweep moves the nodes of a column as close as possible to the mean
# height of their neighbors, without overlaps. The least squares under this condition are an isotonic
# regression, which pooling adjacent violators solves in one pass (Best and Chakravarti, 1990).

_HEIGHT_SWEEPS = 6


def heights(
    columns: Sequence[Sequence[int]],
    before: Mapping[int, Sequence[int]],
    after: Mapping[int, Sequence[int]],
    sizes: Mapping[int, float],
) -> dict[int, float]:
    """Return the height of the middle of each node. The uppermost edge of all nodes is at 0."""
    height: dict[int, float] = {}
    for column in columns:
        height.update(zip(column, _stacked([sizes[node] for node in column]), strict=True))
    for sweep in range(_HEIGHT_SWEEPS):
        neighbors, order = (after, columns[::-1]) if sweep % 2 == 0 else (before, columns)
        for column in order:
            wanted = [_mean([height[each] for each in neighbors[node]], height[node]) for node in column]
            # A bend is thin, and is worth more: an arrow over many columns should be straight.
            weights = [1 / sizes[node] for node in column]
            height.update(
                zip(column, nearest(wanted, weights, [sizes[node] for node in column]), strict=True)
            )
    top = min((height[node] - sizes[node] / 2 for node in height), default=0)
    return {node: value - top for node, value in height.items()}


def nearest(wanted: Sequence[float], weights: Sequence[float], sizes: Sequence[float]) -> list[float]:
    """Return heights in this order, closest to those wanted, with room for each of these sizes."""
    stacked = _stacked(sizes)
    pools: list[tuple[float, float, int]] = []  # the mean, the weight, and how many nodes
    for want, weight, offset in zip(wanted, weights, stacked, strict=True):
        pool = (want - offset, weight, 1)
        while pools and pools[-1][0] >= pool[0]:
            mean, mass, count = pools.pop()
            total = mass + pool[1]
            pool = ((mean * mass + pool[0] * pool[1]) / total, total, count + pool[2])
        pools.append(pool)
    means = [mean for mean, _mass, count in pools for _each in range(count)]
    return [mean + offset for mean, offset in zip(means, stacked, strict=True)]


def _stacked(sizes: Sequence[float]) -> list[float]:
    """Return heights without gaps, the first at 0."""
    steps = [(upper + lower) / 2 for upper, lower in pairwise(sizes)]
    return list(accumulate(steps, initial=0.0)) if sizes else []


def _mean(values: Sequence[float], default: float) -> float:
    return sum(values) / len(values) if values else default
