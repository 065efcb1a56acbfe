"""Where a worker looks for jobs: the ranges, their groups, and the order in which a claim reads them.

Jobs without a group are read range by range (``ranges``). If jobs of a range have groups, the range is read
group by group. A second set of ranges, ``times``, is for finding groups: it has the marks of a
search that reads the jobs with a group by time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from ...jobs.claim import Claimed
from .inbox import Orders
from .ranges import LAG, FirstDue, Groups, Key, Ranges, time_of

ARRIVALS = 500
"""How many jobs with a group a search reads in each range."""
_FORGET_EVERY = 1.0  # seconds


class Places:
    """What one worker knows of the queues. ``now`` is a monotonic clock in seconds."""

    def __init__(
        self,
        orders: Orders,
        queue_weights: Mapping[str, int],
        group_weights: Mapping[str, int],
        aging: float | None,
    ) -> None:
        self._orders = orders
        self.ranges = Ranges(orders)
        self.times = Ranges(orders)
        self._groups: dict[Key, Groups] = {}
        self._group_weights = group_weights
        self._turns = Turns(queue_weights, aging)
        self._next_forget = 0.0

    def keys(self) -> list[Key]:
        """Return what the next claim reads."""
        keys = self.ranges.keys()
        return [*keys, *(key for key in self._awake() if key not in keys)] if self._groups else keys

    def claim_parameters(self, limit: int, now: float) -> dict[str, Any]:
        """Return the arrays of the claim. ``groups`` and ``quotas`` are among them if there are groups."""
        awake = self._awake() if self._groups else {}
        rows: list[tuple[Any, ...]] = []
        for key in self._turns.next(self.keys(), lambda key: self._waited(key, now)):
            known = self.ranges.get(key)
            mark = None if known is None else known.mark
            if key in awake:
                awake[key].include(mark)
                rows += [(*key, *share[2:], *share[:2]) for share in awake[key].shares(limit)]
            elif mark is not None:
                rows.append((*key, str(mark[0]) if awake else mark[0], mark[1], None, limit))
        names = ("queues", "priorities", "marks", "mark_ids", *(("groups", "quotas") if awake else ()))
        columns = zip(*rows, strict=True) if rows else [()] * 6
        return {name: list(column) for name, column in zip(names, columns, strict=False)}

    def claimed(
        self, rows: Sequence[Claimed], asked: Mapping[str, Any], now: float, *, whole: bool, refused: bool
    ) -> None:
        """Learn from the rows of a claim with these parameters, in the order of time.

        ``whole``: it had room for more. ``refused``: some of the jobs that it has read may not start.
        """
        self.ranges.advance([row for row in rows if row.group_key is None], now)
        limited = set(asked.get("limited_queues", ()))
        if whole and not limited:
            keys = set(zip(asked["queues"], asked["priorities"], strict=True))
            self.ranges.emptied(keys)
            self.times.emptied(keys)
        if "groups" not in asked:
            return
        # A group that gave less than its quota has no more jobs, unless its queue is full, or some may not
        # start.
        shares: dict[Key, list[tuple[str | None, int]]] = {}
        columns = (asked[name] for name in ("queues", "priorities", "groups", "quotas"))
        for queue, priority, group, quota in zip(*columns, strict=True):
            shares.setdefault((queue, priority), []).append((group, quota))
        for key, parts in shares.items():
            if groups := self._groups.get(key):
                found = [row for row in rows if (row.queue_name, row.priority) == key]
                full = bool(limited & {"*", key[0]})
                parts = [] if refused else parts if not full else [(name, 1) for name, _ in parts]
                groups.claimed(parts, found, whole=whole and not full)
                if found and (times := self.times.get(key)):
                    times.used = now

    def known(self, *, rescan: bool) -> tuple[list[Any], ...]:
        """Return the arrays of a search: queues, whether with groups, priorities, and marks. A ``rescan``
        begins at the start. But while groups have jobs, it would only find the oldest of these again, so it
        leaves that to a pass.
        """
        nothing: tuple[list[Any], ...] = ([], [], [], [])
        plain: tuple[list[Any], ...] = nothing if rescan else self.ranges.known()
        grouped: tuple[list[Any], ...] = nothing if rescan and not self.has_groups else self.times.known()
        kinds = [False] * len(plain[0]) + [True] * len(grouped[0])
        queues, *others = (first + second for first, second in zip(plain, grouped, strict=True))
        return queues, kinds, *others

    def learn(self, found: Iterable[FirstDue], now: float) -> None:
        """Learn from the first jobs of the ranges, and from the next jobs with a group."""
        grouped: dict[Key, list[FirstDue]] = {}
        plain: list[FirstDue] = []
        for first in found:
            if first.group_key is None:
                plain.append(first)
            else:
                grouped.setdefault((first.queue_name, first.priority), []).append(first)
        self.ranges.learn(plain, now)
        for key, firsts in grouped.items():
            self._learn_groups(key, firsts, now)

    def forget(self, now: float) -> None:
        """Remove what nothing was found in for a minute."""
        if now < self._next_forget:
            return
        self._next_forget = now + _FORGET_EVERY
        self.ranges.forget(now)
        self.times.forget(now)
        for key, groups in list(self._groups.items()):
            if not groups and self.times.get(key) is None:
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
        return [(key, groups) for key, groups in self._groups.items() if groups.in_pass]

    def _learn_groups(self, key: Key, firsts: list[FirstDue], now: float) -> None:
        times = self.times.get(key)
        if times is None:
            self.times.learn(firsts[:1], now)
        due = [first for first in firsts if first.due_in <= 0]
        groups = self._groups.setdefault(key, Groups(self._group_weights))
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

    def _awake(self) -> dict[Key, Groups]:
        stops = self._orders.stops
        return {key: groups for key, groups in self._groups.items() if groups and not stops(key[0])}

    def _waited(self, key: Key, now: float) -> float:
        both = self.ranges.get(key), self.times.get(key)
        return max([found.waited(now) for found in both if found], default=0.0)


# ----------------------------------------------------------------------------
# In which order a claim reads the ranges: by priority, and in turn among the queues of one priority.
#
# A queue with a weight comes first as often as its weight says: of three queues with the weights 6, 3 and 1,
# the first one comes first in six of ten claims. They are mixed as evenly as possible ("smooth weighted
# round robin", as in nginx): each queue gains its weight with each claim, and the one with the most comes
# first and pays the sum of all weights.
#
# With aging, jobs that have waited for a while count as jobs of a higher priority. A mark tells how long
# the first job of a range has waited.


class Turns:
    """The order of the ranges of one worker."""

    def __init__(self, weights: Mapping[str, int] | None = None, aging: float | None = None) -> None:
        """``weights``: of the queues; others have 1. ``aging``: the seconds of waiting that count as one
        level of priority."""
        self._weights = weights or {}
        self._aging = aging
        self._gained: dict[Key, int] = {}
        self._known: list[Key] = []
        self._keys: list[Key] = []

    def next(self, keys: list[Key], waited: Callable[[Key], float]) -> list[Key]:
        """Return the order for the next claim. ``waited``: the seconds that the first job of a range has
        waited."""
        if keys != self._known:
            self._known = keys
            self._keys = sorted(keys, key=lambda key: (-key[1], key[0]))
            self._gained = {key: self._gained.get(key, 0) for key in keys}
        if len(keys) < 2:
            return self._keys
        levels: dict[int, list[Key]] = {}
        for key in self._keys:
            levels.setdefault(self._level(key, waited), []).append(key)
        order: list[Key] = []
        for level in sorted(levels, reverse=True) if self._aging else levels:
            order += self._in_turn(levels[level])
        return order

    def _level(self, key: Key, waited: Callable[[Key], float]) -> int:
        return key[1] if self._aging is None else key[1] + int(max(0.0, waited(key)) / self._aging)

    def _in_turn(self, keys: list[Key]) -> list[Key]:
        total = 0
        for key in keys:
            weight = self._weights.get(key[0], 1)
            self._gained[key] += weight
            total += weight
        order = sorted(keys, key=self._gained.__getitem__, reverse=True)
        self._gained[order[0]] -= total
        return order
