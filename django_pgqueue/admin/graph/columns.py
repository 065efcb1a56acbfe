"""The columns of a drawing: every arrow leads from a column to one further right.

This is the first part of the method of Sugiyama, Tagawa and Toda ("Methods for visual understanding of
hierarchical system structures", 1981), with the longest path: a node stands one column to the right of the
last of its parents. A node without parents stands next to the first of its children.

A workflow has no cycles. If one is given nevertheless, one of its arrows leads to the left, and nothing
hangs.
"""

from __future__ import annotations

from collections import defaultdict, deque
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, Iterable

__all__ = ["columns"]

K = TypeVar("K", bound="Hashable")


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
