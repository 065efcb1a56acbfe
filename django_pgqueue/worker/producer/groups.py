"""The groups of each (queue, priority), and whose turn it is.

    unknown --wake(first job)--> in the ring, with a mark like that of a range (``ranges``)
    in the ring --named in a claim--> at its end
    in the ring --it gave less than its quota--> unknown

A group stays in the ring until its turn, however long a round takes: otherwise it would lose its place.

A claim names as many groups as it has room for, with a quota each: so many jobs of it are taken. If there are
fewer groups, their quotas share the room. The jobs without a group (None) are a member of the ring like any
other.

The groups are found by time: a search reads the next jobs of all groups (``Claimer.search``). Where it cannot
keep up, or has just begun, or may have missed a job that was committed late, a pass goes through the names of
the groups (``sql/groups_after_v1.sql``). Both are hints, like all marks: what they miss, a later one finds.
"""

from __future__ import annotations

from collections import OrderedDict
from datetime import timedelta
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from .ranges import LAG, time_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from ...lifecycle.claimed import Claimed
    from .ranges import FirstDue

__all__ = ["SLICE", "Groups", "Share", "in_turn"]

SLICE = 200  # groups in one step of a pass
PASS_RATION = 50.0
"""The pause after a pass, as a multiple of the time that its steps took."""
NEEDED_RATION = 5.0
"""The same before one that is needed."""


class Share(NamedTuple):
    """What a claim takes of one group."""

    group: str | None
    quota: int
    mark: str  # as text: a claim sends many, and a datetime takes four times as long
    id: int


class _Group:
    __slots__ = ("id", "run_after")

    def __init__(self, run_after: datetime, job: int) -> None:
        self.run_after = run_after
        self.id = job


class Groups:
    """The groups of one (queue, priority). ``now`` is a monotonic clock in seconds."""

    def __init__(self, weights: Mapping[str, int]) -> None:
        self._weights = weights
        self._ring: OrderedDict[str | None, _Group] = OrderedDict()
        self._after: str | None = ""  # how far the pass has come; None: there is none
        self._spent = 0.0  # by the steps of the pass, in seconds
        self._ended = 0.0
        self._needed = False

    def __len__(self) -> int:
        """How many groups have jobs, as far as is known. The jobs without a group do not count."""
        return len(self._ring) - (None in self._ring)

    @property
    def in_pass(self) -> bool:
        """Whether a pass is on its way."""
        return self._after is not None

    def begin_pass(self, now: float, *, needed: bool = False) -> None:
        """Begin a pass if none is on its way, and if the last one is long enough ago. If a search by time has
        left jobs out, it is ``needed``, and begins sooner, or follows the one on its way."""
        self._needed = self._needed or needed
        pause = self._spent * (NEEDED_RATION if self._needed else PASS_RATION)
        if self._after is None and now >= self._ended + pause:
            self._needed = False
            self._after = ""
            self._spent = 0.0

    def step(self) -> tuple[str, int]:
        """Return after which name the pass goes on, and how many groups its next step may find."""
        return self._after or "", SLICE

    def passed(self, found: Sequence[FirstDue], now: float, seconds: float) -> None:
        """Learn what a step has found in so many ``seconds``."""
        for first in found:
            if first.due_in <= 0:
                self.wake(first)
        self._spent += seconds
        self._after = found[-1].group_key if len(found) >= SLICE else None
        self._ended = now

    def wake(self, first: FirstDue) -> None:
        """Learn the first job of a group, which is due."""
        start = (time_of(first.run_after), first.id - 1)
        if first.due_in > -LAG.total_seconds():
            start = (start[0] - timedelta(seconds=first.due_in) - LAG, 0)
        group = self._ring.get(first.group_key)
        if group is None:
            assert first.group_key is not None
            group = self._ring[first.group_key] = _Group(*start)
        if start < (group.run_after, group.id):
            group.run_after, group.id = start

    def include(self, mark: tuple[datetime, int] | None) -> None:
        """Let the jobs without a group take part from this mark on. None: there are none."""
        if mark is None:
            self._ring.pop(None, None)
        elif (group := self._ring.get(None)) is None:
            self._ring[None] = _Group(*mark)
        else:
            group.run_after, group.id = mark

    def shares(self, limit: int) -> list[Share]:
        """Return whose jobs the next claim takes, and how many. Those whose turn it was go to the end."""
        found: list[Share] = []
        factor = 1
        if len(self._ring) < limit:
            factor = -(-limit // sum(self._weight(name) for name in self._ring)) if self._ring else 1
        given = served = 0
        # Some more are named than there is room for: a group may have fewer jobs than its quota.
        enough = limit + max(8, limit // 8)
        for name, group in self._ring.items():
            quota = min(limit, factor * self._weight(name))
            found.append(Share(name, quota, str(group.run_after), group.id))
            given += quota
            served += given - quota < limit
            if given >= enough:
                break
        for share in islice(found, served):
            self._ring.move_to_end(share.group)
        return found

    def claimed(
        self, shares: Sequence[tuple[str | None, int]], rows: Sequence[Claimed], *, whole: bool
    ) -> None:
        """Learn from a claim that took these ``(group, quota)``, and gave ``rows``, in the order of time.

        ``whole``: it has read all of these groups to their quota or their end. Otherwise this is certain only
        of those before the last one that gave jobs.
        """
        taken: dict[str | None, list[Claimed]] = {}
        for row in rows:
            taken.setdefault(row.group_key, []).append(row)
        for name, got in taken.items():
            if name is not None and (group := self._ring.get(name)):
                group.run_after, group.id = _mark(group, got)
        last = max((place for place, (name, _) in enumerate(shares) if name in taken), default=0)
        for name, quota in shares if whole else shares[:last]:
            if name is not None and len(taken.get(name, ())) < quota:
                self._ring.pop(name, None)

    def _weight(self, name: str | None) -> int:
        return self._weights.get(name, 1) if name is not None else 1


def in_turn(rows: Sequence[Claimed]) -> list[Claimed]:
    """Return the rows in the order in which they start: of each priority, first the first job of each group,
    then the second of each."""
    nth: dict[tuple[str, int, str | None], int] = {}
    places: list[int] = []
    for row in rows:
        key = (row.queue_name, row.priority, row.group_key)
        places.append(nth.get(key, 0))
        nth[key] = places[-1] + 1
    ordered = sorted(zip(rows, places, strict=True), key=lambda each: (-each[0].priority, each[1]))
    return [row for row, _ in ordered]


def _mark(group: _Group, rows: Sequence[Claimed]) -> tuple[datetime, int]:
    reached = (time_of(rows[-1].run_after), rows[-1].id)
    latest = time_of(rows[-1].last_attempted_at) - LAG
    if reached[0] > latest:
        reached = (latest, 0)
    return max(reached, (group.run_after, group.id))
