"""Where a worker polls for jobs: ranges, each with its mark.

A range is one (queue, priority). Its mark is the pair (run_after, id) below which this worker does not expect
jobs. The claim reads the index from there, so that it does not read the entries of deleted jobs again, which
stay in the index as long as anybody holds an old snapshot.

    unknown --learn(first job)--> known: mark just below its first job, but never later than half a second ago
    known   --claimed(rows)--> mark = the last job claimed, but never later than half a second ago
    known   --learn(first job below the mark)--> mark lowered to it
    known   --nothing found for a minute, or too many without jobs--> forgotten
    known   --its queue is paused--> left out, until the pause ends or it is forgotten

Marks are hints: a wrong mark costs time but never loses a job. A job that becomes claimable gets a
``run_after`` that is not in the past, so it is above the marks. Below a mark there are only jobs that were
committed late (half a second covers the usual ones) or edited by a user. A rescan from the start finds these.
It reads the dead entries, so it is rationed. Between rescans, only the gaps between known ranges are probed.

A range whose jobs are all due later is not known. There may be very many of these, such as a queue for each
customer: the worker only keeps when the next of them come due (``claimer.py``).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any, NamedTuple, TypeAlias

from ... import conf
from ...jobs.claim import Claimed
from .inbox import Orders

Key: TypeAlias = tuple[str, int]  # a queue and a priority
Mark: TypeAlias = tuple[datetime, int]
LAG = timedelta(seconds=0.5)
FORGET_AFTER = 60.0  # seconds
MOST_QUIET = 64  # ranges are kept that have no jobs which are due: each claim reads all ranges
ARRIVALS = 500  # jobs with a group that a search reads in each range
_FORGET_EVERY = 1.0  # seconds

_EARLIEST = datetime.min.replace(tzinfo=UTC)
_LATEST = datetime.max.replace(tzinfo=UTC)


class FirstDue(NamedTuple):
    """The first job of a range, as ``_pgqueue_first_due`` returns it."""

    queue_name: str
    priority: int
    run_after: str
    id: int
    due_in: float  # seconds
    group_key: str | None = None
    is_known: bool = False  # whether the search began at a mark

    @property
    def mark(self) -> Mark:
        """The mark from which a claim finds it."""
        run_after = time_of(self.run_after)
        if self.due_in > -LAG.total_seconds():
            # A job that is enqueued next, or committed late, may be due before this first job.
            return run_after - timedelta(seconds=self.due_in) - LAG, 0
        return run_after, self.id - 1


@dataclass(slots=True)
class Range:
    """A range or a group."""

    mark: Mark
    used: float = 0.0
    due_since: float | None = None  # when its first job was due, as far as is known

    def advance(self, row: Claimed) -> None:
        """Move the mark up to a job that was claimed, but never later than half a second before that."""
        run_after, latest = time_of(row.run_after), time_of(row.last_attempted_at) - LAG
        self.mark = max(self.mark, (run_after, row.id) if run_after <= latest else (latest, 0))


def time_of(text: str) -> datetime:
    """Parse a time of the server. The years that Python cannot store become its first or last time."""
    try:
        return datetime.fromisoformat(text)
    except ValueError:  # a user's edit: infinity, or a year before 1 or after 9999
        return _EARLIEST if text.startswith("-") or text.endswith("BC") else _LATEST


# The groups of each (queue, priority), and whose turn it is.
#
#     unknown --wake(first job)--> in the ring, with a mark like that of a range (``ranges``)
#     in the ring --named in a claim--> at its end
#     in the ring --it gave less than its quota--> unknown
#
# A group stays in the ring until its turn, however long a round takes: otherwise it would lose its place. A
# claim names as many groups as it has room for, with a quota each. If there are fewer groups, their quotas
# share the room. The jobs without a group (None) are a member of the ring like any other. The groups are
# found by time: a search reads the next jobs of all groups (``Claimer.search``). Where it cannot keep up, or
# has just begun, or may have missed a job that was committed late, a pass goes through the names of the
# groups (``_pgqueue_groups_after``). What both miss, a later one finds.

SLICE = 200  # groups in one step of a pass
PASS_RATION = 50.0  # the pause after a pass, as a multiple of the time that its steps took
NEEDED_RATION = 5.0  # the same before one that is needed


class Groups:
    """The groups of one (queue, priority). ``now`` is a monotonic clock in seconds."""

    def __init__(self, weights: Mapping[str, int]) -> None:
        self._weights = weights
        self._ring: OrderedDict[str | None, Range] = OrderedDict()
        self.after: str | None = ""  # how far the pass has come; None: there is none
        self._spent = 0.0  # by the steps of the pass, in seconds
        self._ended = 0.0
        self._needed = False

    def __len__(self) -> int:
        """How many groups have jobs, as far as is known. The jobs without a group do not count."""
        return len(self._ring) - (None in self._ring)

    def begin_pass(self, now: float, *, needed: bool = False) -> None:
        """Begin a pass if none is on its way, and if the last one is long enough ago. If a search by time has
        left jobs out, it is ``needed``, and begins sooner, or follows the one on its way."""
        self._needed = self._needed or needed
        pause = self._spent * (NEEDED_RATION if self._needed else PASS_RATION)
        if self.after is None and now >= self._ended + pause:
            self._needed, self.after, self._spent = False, "", 0.0

    def passed(self, found: Sequence[FirstDue], now: float, seconds: float) -> None:
        """Learn what a step of the pass, with up to ``SLICE`` groups, has found in so many ``seconds``."""
        for first in found:
            if first.due_in <= 0:
                self.wake(first)
        self._spent += seconds
        self.after = found[-1].group_key if len(found) >= SLICE else None
        self._ended = now

    def wake(self, first: FirstDue) -> None:
        """Learn the first job of a group, which is due."""
        mark = first.mark
        group = self._ring.setdefault(first.group_key, Range(mark))
        group.mark = min(group.mark, mark)

    def shares(self, limit: int, plain: Mark | None = None) -> list[tuple[str, int, str | None, int]]:
        """Return what the next claim takes: mark, id, group and quota. Those whose turn it was go to the end.

        ``plain``: from where on there are jobs without a group. The mark is text, since a claim sends many,
        and a datetime takes four times as long.
        """
        if plain is None:
            self._ring.pop(None, None)
        else:
            self._ring.setdefault(None, Range(plain)).mark = plain
        found: list[tuple[str, int, str | None, int]] = []
        factor = 1
        if len(self._ring) < limit:
            factor = -(-limit // sum(self._weight(name) for name in self._ring)) if self._ring else 1
        given = served = 0
        # Some more are named than there is room for: a group may have fewer jobs than its quota.
        enough = limit + max(8, limit // 8)
        for name, group in self._ring.items():
            quota = min(limit, factor * self._weight(name))
            run_after, job_id = group.mark
            found.append((str(run_after), job_id, name, quota))
            given += quota
            served += given - quota < limit
            if given >= enough:
                break
        for _, _, name, _ in islice(found, served):
            self._ring.move_to_end(name)
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
                group.advance(got[-1])
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


class Turns:
    """In which order a claim reads the ranges: by priority, and in turn among the queues of one priority.

    ``weights``: of the queues; others have 1. Of three queues with the weights 6, 3 and 1, the first one is
    first in six of ten claims. They are mixed as evenly as possible ("smooth weighted round robin", as in
    nginx): each queue gains its weight with each claim, and the one with the most comes first and pays the
    sum of all weights. ``aging``: the seconds of waiting that count as one level of priority.
    """

    def __init__(self, weights: Mapping[str, int] | None = None, aging: float | None = None) -> None:
        self._weights = weights or {}
        self._aging = aging
        self._gained: dict[Key, int] = {}
        self._known: list[Key] = []
        self._keys: list[Key] = []

    def next(self, keys: list[Key], waited: Callable[[Key], float]) -> list[Key]:
        """Return the order of the next claim. ``waited``: the seconds a range's first job has waited."""
        if keys != self._known:
            self._known = keys
            self._keys = sorted(keys, key=lambda key: (-key[1], key[0]))
            self._gained = {key: self._gained.get(key, 0) for key in keys}
        if len(keys) < 2:
            return self._keys
        levels: dict[int, list[Key]] = {}
        for key in self._keys:
            level = key[1]
            if self._aging is not None:
                level += int(max(0.0, waited(key)) / self._aging)
            levels.setdefault(level, []).append(key)
        order: list[Key] = []
        for level in sorted(levels, reverse=True) if self._aging else levels:
            order += self._in_turn(levels[level])
        return order

    def _in_turn(self, keys: list[Key]) -> list[Key]:
        weights = [self._weights.get(queue, 1) for queue, _ in keys]
        for key, weight in zip(keys, weights, strict=True):
            self._gained[key] += weight
        order = sorted(keys, key=self._gained.__getitem__, reverse=True)
        self._gained[order[0]] -= sum(weights)
        return order


class Places:
    """What one worker knows of the queues. Times are the database's; ``now`` is a monotonic clock in seconds.

    Jobs without a group are read range by range. If jobs of a range have groups, the range is read group by
    group. A second mark of each range, in ``times``, is for finding groups: it is that of a search that reads
    the jobs with a group by time.
    """

    def __init__(self, orders: Orders, queue_weights: Mapping[str, int]) -> None:
        self._orders = orders
        self._ranges: dict[Key, Range] = {}
        self._times: dict[Key, Range] = {}
        self._groups: dict[Key, Groups] = {}
        self._turns = Turns(queue_weights, conf.current().aging)
        self._next_forget = 0.0

    def keys(self) -> list[Key]:
        """Return what the next claim reads."""
        keys = self._open(self._ranges)
        return [*keys, *(key for key in self._awake() if key not in self._ranges)] if self._groups else keys

    def claim_parameters(self, limit: int, now: float) -> dict[str, Any]:
        """Return the arrays of the claim. ``groups`` and ``quotas`` are among them if there are groups."""
        awake = self._awake() if self._groups else {}
        rows: list[tuple[Any, ...]] = []
        for key in self._turns.next(self.keys(), lambda key: self._waited(key, now)):
            known = self._ranges.get(key)
            mark = None if known is None else known.mark
            if key in awake:
                rows += [(*key, *share) for share in awake[key].shares(limit, mark)]
            elif mark is not None:
                rows.append((*key, str(mark[0]) if awake else mark[0], mark[1], None, limit))
        names = ("queues", "priorities", "marks", "mark_ids", *(("groups", "quotas") if awake else ()))
        columns = zip(*rows, strict=True) if rows else [()] * 6
        return {name: list(column) for name, column in zip(names, columns, strict=False)}

    def claimed(
        self, rows: Sequence[Claimed], asked: Mapping[str, Any], now: float, *, whole: bool, refused: bool
    ) -> None:
        """Learn from the rows of a claim with these parameters, in the order of time: move the marks up.

        ``whole``: it had room for more. ``refused``: some of the jobs that it has read may not start.
        """
        last = {(row.queue_name, row.priority): row for row in rows if row.group_key is None}
        for key, row in last.items():
            if found := self._ranges.get(key):
                found.advance(row)
                found.used = now
                found.due_since = now - row.waited
        limited = set(asked.get("limited_queues", ()))
        if whole and not limited:  # it has read these ranges to their end
            for key in set(zip(asked["queues"], asked["priorities"], strict=True)):
                for found in (self._ranges.get(key), self._times.get(key)):
                    if found:
                        found.due_since = None
        if "groups" not in asked:
            return
        # A group that gave less than its quota is empty, unless its queue is full or some jobs may not start.
        shares: dict[Key, list[tuple[str | None, int]]] = {}
        columns = (asked[name] for name in ("queues", "priorities", "groups", "quotas"))
        for queue, priority, group, quota in zip(*columns, strict=True):
            shares.setdefault((queue, priority), []).append((group, quota))
        for key, parts in shares.items():
            if groups := self._groups.get(key):
                given = [row for row in rows if (row.queue_name, row.priority) == key]
                full = bool(limited & {"*", key[0]})
                parts = [] if refused else parts if not full else [(name, 1) for name, _ in parts]
                groups.claimed(parts, given, whole=whole and not full)
                if given and (times := self._times.get(key)):
                    times.used = now

    def known(self, *, rescan: bool) -> list[list[Any]]:
        """Return the arrays of a search in the gaps: queues, whether with groups, priorities, and marks."""
        # While groups have jobs, a rescan from the start would only find their oldest, and a pass finds more.
        plain = {} if rescan else self._ranges
        times = {} if rescan and not self.has_groups else self._times
        rows = [
            (queue, ranges is times, priority, *ranges[queue, priority].mark)
            for ranges in (plain, times)
            for queue, priority in self._open(ranges)
        ]
        return [list(column) for column in zip(*rows, strict=True)] or [[], [], [], [], []]

    def learn(self, found: Iterable[FirstDue], now: float) -> None:
        """Learn from the first jobs of the ranges, and from the next jobs with a group."""
        grouped: dict[Key, list[FirstDue]] = {}
        for first in found:
            if first.group_key is None:
                self._learn(self._ranges, first, now)
            else:
                grouped.setdefault((first.queue_name, first.priority), []).append(first)
        for key, firsts in grouped.items():
            self._learn_groups(key, firsts, now)

    def forget(self, now: float) -> None:
        """Remove what nothing was found in for a minute. If very many ranges have no jobs, also those in
        which nothing was found for the longest time."""
        if now < self._next_forget:
            return
        self._next_forget = now + _FORGET_EVERY
        for ranges in (self._ranges, self._times):
            newest = sorted(ranges.items(), key=lambda item: item[1].used, reverse=True)
            old = [key for key, found in newest if now - found.used > FORGET_AFTER]
            quiet = [key for key, found in newest if found.due_since is None]
            for key in {*old, *quiet[MOST_QUIET:]}:
                del ranges[key]
        for key, groups in list(self._groups.items()):
            if not groups and key not in self._times:
                del self._groups[key]

    @property
    def has_groups(self) -> bool:
        """Whether any jobs with a group wait, as far as is known."""
        return any(self._groups.values())

    def begin_passes(self, now: float) -> None:
        """Look for what a search by time has missed."""
        for groups in self._groups.values():
            groups.begin_pass(now)

    def passes(self) -> list[tuple[Key, Groups]]:
        """Return the passes that are on their way."""
        return [(key, groups) for key, groups in self._groups.items() if groups.after is not None]

    def _learn(self, ranges: dict[Key, Range], first: FirstDue, now: float) -> None:
        """Add a range, or lower the mark of one that has a job below it."""
        mark = first.mark
        found = ranges.setdefault((first.queue_name, first.priority), Range(mark, now))
        if first.due_in <= 0:
            found.used = now
        found.due_since = now + first.due_in if first.due_in < 0 else None
        found.mark = min(found.mark, mark)

    def _learn_groups(self, key: Key, firsts: list[FirstDue], now: float) -> None:
        times = self._times.get(key)
        if times is None:
            self._learn(self._times, firsts[0], now)
        due = [first for first in firsts if first.due_in <= 0]
        groups = self._groups.setdefault(key, Groups(conf.current().group_weights))
        for first in due:
            groups.wake(first)
        if times is None or not due:
            return
        times.used = now
        last = due[-1]
        moment = time_of(last.run_after)
        latest = moment - timedelta(seconds=last.due_in) - LAG
        if (moment, last.id) <= times.mark:  # found by a rescan: it was committed late
            groups.begin_pass(now)
        elif len(firsts) >= ARRIVALS or moment > latest:
            if len(firsts) >= ARRIVALS:  # it does not try to catch up: a pass finds the groups
                groups.begin_pass(now, needed=True)
            times.mark = max(times.mark, (latest, 0))
        else:
            times.mark = moment, last.id

    def _open(self, keys: Iterable[Key]) -> list[Key]:
        if not self._orders.has_pauses:
            return list(keys)
        return [key for key in keys if not self._orders.stops(key[0])]

    def _awake(self) -> dict[Key, Groups]:
        return {key: self._groups[key] for key in self._open(self._groups) if self._groups[key]}

    def _waited(self, key: Key, now: float) -> float:
        """Return the seconds that its first job has waited, as far as is known."""
        both = self._ranges.get(key), self._times.get(key)
        return max([now - found.due_since for found in both if found and found.due_since], default=0.0)
