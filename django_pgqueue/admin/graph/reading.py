"""Read the workflow around a job or a batch, with one statement for each step away from it.

From a job, the steps lead to its parents, to its batch, and to the jobs that wait for it; from a batch, to
its members. Ids are asked for once, so that even a circle, which the queue does not permit, would end. The
number of jobs, of steps and of seconds is limited; what was read until then is shown.

The statements see the jobs at slightly different moments. A job that is moved to the history in between is
read again, or keeps the state that was read first.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple, TypeAlias

from django.db import connections
from django.utils.translation import gettext as _

from ... import formatting
from ...models.job import Status
from ...postgres.timeout import TimeLimitReached, within
from ...redaction import redact_text
from ...tasks.links import HAS_CHILDREN

_JOBS = (Path(__file__).parent / "jobs.sql").read_text(encoding="utf-8")
_BATCHES = (Path(__file__).parent / "batches.sql").read_text(encoding="utf-8")
#: PostgreSQL takes ``&&`` with many values for a condition that many jobs fulfill, and reads whole leaves.
#: The settings end with the block of ``timeout``.
_PINNED = "SELECT set_config('enable_seqscan', 'off', true), set_config('jit', 'off', true)"
#: The jobs one step away: with these ids, in these batches, or enqueued after these jobs or batches.
_STEPS = {
    "ids": "job.id = ANY (%(ids)s::bigint[])",
    "batches": "job.batch = ANY (%(batches)s::bigint[])",
    "parents": "job.parents && %(parents)s::bigint[]",
}
#: Of so many jobs, the children are also looked for without the mark.
_FEW = 1_000

# ----------------------------------------------------------------------------
# A workflow: jobs, batches, and which of them waits for which.
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


class NodeKind(StrEnum):
    """What a node stands for."""

    JOB = "job"
    BATCH = "batch"
    GONE = "gone"
    """A parent that is no longer kept. Nobody knows whether it was a job or a batch."""


class Arrow(StrEnum):
    """Why the second node waits for the first."""

    AFTER = "after"
    MEMBER = "member"


@dataclass(frozen=True, slots=True)
class Node:
    """A job, a batch, or many of one of them."""

    key: Key
    kind: NodeKind
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
    def is_one_job(self) -> bool:
        """Whether the node is a job."""
        return self.kind == NodeKind.JOB and self.size == 1

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

    def leave_out(self, hidden: set[int]) -> None:
        """Remove the nodes of jobs that a user may not see, and their arrows."""
        self.nodes = {key: node for key, node in self.nodes.items() if key not in hidden}
        self.arrows = {ends: arrow for ends, arrow in self.arrows.items() if not hidden.intersection(ends)}


# ----------------------------------------------------------------------------
# Reading.


class Limits(NamedTuple):
    """How much is read at most."""

    jobs: int = 20_000
    steps: int = 400
    seconds: float = 3.0


class _Job(NamedTuple):
    """A row of ``jobs.sql``."""

    id: int
    task_path: str
    status: str
    marks: int
    batch: int | None
    parents: list[int]
    waiting_reason: str

    @property
    def around(self) -> set[int]:
        """What it waits for, and its batch. Nobody knows which of its parents are batches."""
        return {*self.parents} if self.batch is None else {*self.parents, self.batch}


def read(alias: str, here: int, limits: Limits | None = None) -> Workflow:
    """Return the workflow around the job or batch with this id."""
    limits = limits or Limits()
    walk, start = _Walk(alias, limits), monotonic()
    too_long = _("The database took too long, so this is not the whole workflow.")
    problem = within(alias, limits.seconds, lambda: walk.go(here))
    workflow = Workflow(here, problem=too_long if problem is None else problem)
    for job in walk.jobs.values():
        workflow.nodes[job.id] = Node(
            job.id, NodeKind.JOB, job.task_path, Counter({job.status: 1}), batch=job.batch,
            note=redact_text(job.waiting_reason, job.task_path), is_finished=Status(job.status).is_terminal,
        )  # fmt: skip
    keys = {here}.union(*(job.around for job in walk.jobs.values())) - walk.jobs.keys()
    batches = within(alias, limits.seconds, lambda: _read_batches(alias, sorted(keys))) if keys else []
    _add_batches(workflow, batches or [])
    if batches is None:
        workflow.problem = too_long
    for job in walk.jobs.values():
        _add_arrows(workflow, job, walk.asked["ids"])
    workflow.seconds = monotonic() - start
    return workflow


class _Walk:
    """The jobs that were found, and the ids that were asked for."""

    def __init__(self, alias: str, limits: Limits) -> None:
        self.jobs: dict[int, _Job] = {}
        self.asked: dict[str, set[int]] = {part: set() for part in _STEPS}
        """All of these "ids" that exist, and are jobs, are in ``jobs``."""
        self._alias, self._limits = alias, limits

    def go(self, here: int) -> str:
        """Read from ``here`` on. Return why this was not all; empty if it was."""
        with connections[self._alias].cursor() as cursor:
            cursor.execute(_PINNED)
        end = monotonic() + self._limits.seconds
        # First alone: were it one of many, the limit might leave it out.
        wanted = self._level({"ids": {here}})
        wanted["batches"].add(here)
        wanted["parents"].add(here)
        for _step in range(self._limits.steps):
            wanted = self._level(wanted)
            if len(self.jobs) > self._limits.jobs:
                self.jobs.popitem()
                break
            if not any(wanted.values()):
                return ""
            if monotonic() > end:
                raise TimeLimitReached
        return _("This workflow is large. Only %(count)s jobs around this one are shown.") % {
            "count": formatting.number(len(self.jobs))
        }

    def _level(self, wanted: dict[str, set[int]]) -> dict[str, set[int]]:
        """Read the jobs one step away, one more than permitted. Return where the next step leads to."""
        values = {part: sorted(ids) for part, ids in wanted.items() if ids}
        # A part that asks for nothing would be planned for each leaf all the same.
        parts = " UNION ".join(_JOBS + _STEPS[part] for part in values)
        with connections[self._alias].cursor() as cursor:
            cursor.execute(f"{parts} LIMIT %(most)s", {**values, "most": self._limits.jobs + 1})
            rows = sorted(_Job(*row) for row in cursor.fetchall())
        found: dict[str, set[int]] = {part: set() for part in _STEPS}
        for job in rows:
            if len(self.jobs) > self._limits.jobs:
                return found
            if self.jobs.setdefault(job.id, job) is job:
                for ids in found.values():
                    ids |= job.around
                # A job that was over when others were told to wait for it has no mark.
                if job.marks & HAS_CHILDREN or len(self.jobs) < _FEW:
                    found["parents"].add(job.id)
        for part, ids in wanted.items():
            self.asked[part] |= ids
        found["ids"] -= self.jobs.keys()
        found["batches"] -= self.jobs.keys()
        return {part: ids - self.asked[part] for part, ids in found.items()}


def _read_batches(alias: str, keys: list[int]) -> list[Any]:
    """Return those of these ids that are batches, as rows of ``batches.sql``."""
    with connections[alias].cursor() as cursor:
        cursor.execute(_BATCHES, {"ids": keys})
        rows: list[Any] = cursor.fetchall()
        return rows


def _add_batches(workflow: Workflow, batches: list[Any]) -> None:
    """Add the nodes of batches. The states of live members are known only if all of them were read."""
    live: dict[int | None, Counter[str]] = defaultdict(Counter)
    for node in workflow.nodes.values():
        live[node.batch].update(() if node.is_finished else node.counts)
    for key, name, is_open, is_finished, added, done, failed, cancelled in batches:
        counts = Counter(done=done, failed=failed, cancelled=cancelled)
        counts.update(Counter({LIVE: added - counts.total()}) if workflow.problem else live[key])
        note = _("still open") if is_open else ""
        workflow.nodes[key] = Node(key, NodeKind.BATCH, name, +counts, note=note, is_finished=is_finished)


def _add_arrows(workflow: Workflow, job: _Job, asked: set[int]) -> None:
    """Add the arrows to a job and to its batch, and a node for each parent that nobody keeps any more."""
    for parent in job.parents:
        if parent in asked and parent not in workflow.nodes:
            workflow.nodes[parent] = Node(parent, NodeKind.GONE, "", Counter(), is_finished=True)
        if parent in workflow.nodes:
            workflow.arrows[parent, job.id] = Arrow.AFTER
    if job.batch in workflow.nodes:
        workflow.arrows[job.id, job.batch] = Arrow.MEMBER
