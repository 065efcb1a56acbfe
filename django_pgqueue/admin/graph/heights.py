"""How far down each node stands in its column, so that arrows are short and straight.

The order of a column is given. Each sweep moves the nodes of a column as close as possible to the mean height
of their neighbors, without overlaps. The least squares under this condition are an isotonic regression, which
pooling adjacent violators solves in one pass (Best and Chakravarti, 1990).
"""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["heights", "nearest"]

_SWEEPS = 6


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
    for sweep in range(_SWEEPS):
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
