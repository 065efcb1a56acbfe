"""Limits and rates while processes are killed: the intervals of the ledger show that they hold."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from random import Random
from typing import NamedTuple

from django.db.models import Q

from django_pgqueue.models import Job, Limit
from django_pgqueue.tasks.task import BoundTask
from tests.app import ledger_tasks as tasks
from tests.support.limits import most_in_window

from ..harness.audit import Audit
from ..harness.ledger import CLOCK, Accounts, Fault, Run
from ..harness.scenario import Scenario
from ..harness.stage import PATIENCE, Stage
from .processes import kill_process, kill_supervisor

#: Each task, its limit, and how many keys it has. 0: each `IN_A_ROW` jobs have a new key. Two workers that
#: claim some of them at the same moment find nobody in the wait queue of that key.
LIMITS = {tasks.few: (1, 4), tasks.many: (1, 0), tasks.three: (3, 3), tasks.ten: (10, 1)}
IN_A_ROW = 8
MOST = {task.module_path: limit for task, (limit, _) in LIMITS.items()}

RATE, BURST = 25, 5  # starts in a second, of each key
RATED_KEYS = 2
WINDOWS = (0.1, 1.0, 5.0)  # seconds
LATE = 0.25
"""Seconds from the decision of a claim to the stamps in its rows, at most, on a busy machine."""
BLOCK = 30  # jobs of one task in a row reach its limit


class Interval(NamedTuple):
    """When a run certainly had a place in its limit."""

    begin: float
    end: float
    run: Run | None = None


def limited(number: int, choice: Random) -> BoundTask:
    """Return a call of a task with a limit: in each second block of numbers, always of the same task."""
    among = {**LIMITS, tasks.rated: (1, RATED_KEYS)}
    block = Random(number // BLOCK)
    task = (block if block.random() < 0.5 else choice).choice(list(among))
    limit, keys = among[task]
    longest = 0.03 * limit**1.5  # so that the slots of each limit are in use at the same time
    seconds = choice.random() ** 3 * longest
    queue_name = choice.choice(["default"] * 4 + ["mail"])
    key = choice.randrange(keys) if keys else number // IN_A_ROW
    return task.using(queue_name=queue_name).bind(number, key, seconds)


def reach_the_limits(stage: Stage) -> None:
    """Wait until each limit and the rate were reached. Otherwise the run would show nothing.

    If one was exceeded, the check of the scenario says so at the end.
    """

    def reached() -> bool:
        shown = Shown(stage.accounts())
        is_full = all(shown.reached[path] >= most for path, most in MOST.items())
        return is_full and shown.starts[0.1] >= BURST

    end = time.monotonic() + PATIENCE
    while not reached():
        assert time.monotonic() < end, "the limits were not reached"
        time.sleep(0.5)  # it takes a while to compute


class Shown:
    """What a ledger shows."""

    def __init__(self, accounts: Accounts) -> None:
        calls = dict(Job.objects.values_list("pk", "task_path"))
        keys = dict(Job.objects.values_list("pk", "args__1"))
        intervals: dict[tuple[str, int], list[Interval]] = defaultdict(list)
        claims: dict[int, list[datetime]] = defaultdict(list)
        for run in sorted(accounts.runs, key=lambda run: run.claimed):
            path, key = calls[run.job], keys[run.job]
            if path == tasks.rated.module_path:
                claims[key].append(datetime.fromtimestamp(run.claimed, UTC))
                continue
            if path not in MOST:  # a job that a kill was aimed at
                continue
            begin, end = _claimed(run), _ended(run, accounts.faults)
            if end is not None and end >= begin:
                intervals[path, key].append(Interval(begin, end, run))
        self.crowds: list[list[Interval]] = []
        """The runs of a key that were more at once than its limit allows."""
        self.reached: dict[str, int] = defaultdict(int)
        """How many jobs of a key ran at once, at most, by the path of the task."""
        for (path, _), found in intervals.items():
            most = at_once(found)
            self.reached[path] = max(self.reached[path], most)
            if most > MOST[path]:
                self.crowds.append(crowd(found))
        self.starts = {
            window: max(
                (most_in_window(each, timedelta(seconds=window)) for each in claims.values()), default=0
            )
            for window in WINDOWS
        }
        """How many jobs of a key were claimed in a window of time, at most. A claim is charged to a rate even
        if its worker dies before the jobs begin."""


def limits_held(stage: Stage, audit: Audit) -> list[str]:
    """Return where more jobs of a key ran, or started, than its limit allows."""
    shown = Shown(audit.accounts)
    problems = [f"more at once than the limit of their key: {crowd}" for crowd in shown.crowds]
    problems += [
        f"{count} starts of a rate within {window:g} s"
        for window, count in shown.starts.items()
        if count > BURST + RATE * (window + LATE)
    ]
    # Workers import the modules of other tests, too, and write their limits.
    mine = Q(name="ten") | Q(name__startswith=f"{tasks.__name__}.")
    declared = {limit.name: limit.concurrency for limit in Limit.objects.filter(mine)}
    if declared != {tasks.rated.module_path: None, "ten": 10} | {
        task.module_path: most for task, (most, _) in LIMITS.items() if task is not tasks.ten
    }:
        problems.append(f"the limits are not those of the tasks: {declared}")
    return problems


def at_once(intervals: Sequence[Interval]) -> int:
    """Return how many of these overlap at most."""
    changes = sorted([(each.begin, 1) for each in intervals] + [(each.end, -1) for each in intervals])
    most = now = 0
    for _, change in changes:
        now += change
        most = max(most, now)
    return most


def crowd(intervals: Sequence[Interval]) -> list[Interval]:
    """Return those that overlap where most of them do."""
    start = max(intervals, key=lambda one: sum(each.begin <= one.begin < each.end for each in intervals))
    return [each for each in intervals if each.begin <= start.begin < each.end]


def _claimed(run: Run) -> float:
    """Return since when a job was certainly running for the queue: it may have waited for a thread."""
    return min(run.began, run.claimed_at + CLOCK)


def _ended(run: Run, faults: Iterable[Fault]) -> float | None:
    """Return until when a run was certainly running; None if it was killed, but it is not known when."""
    if run.ended is not None:
        return run.ended
    return min((fault.before for fault in faults if fault.hit(run)), default=None)


SCENARIOS = [
    Scenario(
        name="limits",
        promises=("limit", "limit-recovery", "rate"),
        expects="""
            However many processes are killed, no key ever has more jobs at once than its limit, no more jobs
            of a key start in a window of time than its rate allows, and no job stays in the line of its
            key.
        """,
        faults=(kill_process, kill_process, kill_supervisor, reach_the_limits),
        processes=2,  # sixteen slots: more than the largest limit
        rate=150.0,
        backlog=300,
        mix=limited,
        check=limits_held,
    )
]
