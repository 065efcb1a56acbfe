"""A workflow as it was read: jobs, batches, and which of them waits for which.

A batch waits for its members, so an arrow leads from each member to its batch. A parent that is no longer
kept has a node, too, because its children still name it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, TypeAlias

from ...models.job import Status

if TYPE_CHECKING:
    from collections import Counter

__all__ = ["LIVE", "MATTERS", "Arrow", "Key", "Kind", "Node", "Workflow"]

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
    is_over: bool = False

    @property
    def state(self) -> str:
        """The state that matters most of those that occur; empty if there are no jobs."""
        return next((state for state in MATTERS if self.counts[state]), "")

    @property
    def has_failed(self) -> bool:
        """Whether the node is a job that has failed, or a batch that is over and in which one has."""
        return self.is_over and self.size == 1 and self.state == Status.FAILED.value


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
    def is_over(self) -> bool:
        """Whether nothing changes any more, unless somebody retries or adds a job."""
        return all(node.is_over for node in self.nodes.values())
