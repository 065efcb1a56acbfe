"""Draw a large workflow with few nodes: one for all jobs of a task.

Jobs are folded first if they have the same task and batch and stand in the same column, so that the arrows
keep their direction. If this is not enough, all jobs of a task become one node, and all batches of a name.
The arrows may then lead in a circle; the layout can draw this. The node that the user came from is never
folded.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from .columns import columns
from .nodes import Arrow, Key, Kind, Node, Workflow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["MOST_ARROWS", "MOST_NODES", "folded"]

#: Workflows with more nodes or arrows are folded.
MOST_NODES = 300
MOST_ARROWS = 1_500

_OTHERS = ("others",)
_MANY = {
    Kind.JOB: Kind.MANY_JOBS, Kind.BATCH: Kind.MANY_BATCHES, Kind.GONE: Kind.GONE,
    Kind.MANY_JOBS: Kind.MANY_JOBS, Kind.MANY_BATCHES: Kind.MANY_BATCHES,
}  # fmt: skip


def folded(workflow: Workflow) -> Workflow:
    """Return the workflow if it is small, or a smaller one that stands for it."""
    if _fits(workflow):
        return workflow
    column = columns(workflow.nodes, workflow.arrows)
    by_place = _fold(workflow, lambda node: (node.kind, node.name, node.batch or 0, column[node.key]))
    if _fits(by_place):
        return by_place
    by_name = _fold(workflow, lambda node: (node.kind, node.name))
    if _fits(by_name):
        return by_name
    sizes = sorted(by_name.nodes.values(), key=lambda node: -node.size)
    kept = {node.key for node in sizes[: MOST_NODES - 2]}
    return _fold(by_name, lambda node: node.key if node.key in kept else _OTHERS)


def _fits(workflow: Workflow) -> bool:
    return len(workflow.nodes) <= MOST_NODES and len(workflow.arrows) <= MOST_ARROWS


def _fold(workflow: Workflow, key_of: Callable[[Node], Key]) -> Workflow:
    """Make one node of all nodes with the same key."""
    groups: dict[Key, list[Node]] = defaultdict(list)
    for node in workflow.nodes.values():
        groups[node.key if node.key == workflow.here else key_of(node)].append(node)
    small = Workflow(workflow.here, problem=workflow.problem, seconds=workflow.seconds)
    new_key: dict[Key, Key] = {}
    for key, group in groups.items():
        node = group[0] if len(group) == 1 else _many(key, group)
        small.nodes[node.key] = node
        new_key.update((each.key, node.key) for each in group)
    for (parent, child), arrow in workflow.arrows.items():
        ends = new_key[parent], new_key[child]
        if ends[0] != ends[1]:
            both = small.arrows.setdefault(ends, arrow)
            small.arrows[ends] = Arrow.MEMBER if both == arrow == Arrow.MEMBER else Arrow.AFTER
    return small


def _many(key: Key, group: list[Node]) -> Node:
    first = group[0]
    return Node(
        key=key,
        kind=_MANY[first.kind],
        name=first.name if _same(node.name for node in group) else "",
        counts=sum((node.counts for node in group), Counter[str]()),
        size=sum(node.size for node in group),
        batch=first.batch if _same(node.batch for node in group) else None,
        is_over=all(node.is_over for node in group),
    )


def _same(values: Iterable[object]) -> bool:
    return len(set(values)) == 1
