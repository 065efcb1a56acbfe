"""Run jobs with concurrency keys and rates while processes are killed at random. The intervals of a ledger
outside the queue show that no key ever had more jobs at once than its limit, that in no window of time more
jobs of a key started than its rate allows, and that no job stays in its line.

python3 dev.py ledger -k limits            the short form
LEDGER_LIMIT_SECONDS=600                   environment variable for the long form: the time of the kills
LEDGER_SEED=...                            repeats the random choices of a run, though not the run itself
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from django.db import transaction

from django_pgqueue import enqueue_many
from django_pgqueue.definition import BoundTask, Task
from django_pgqueue.models import Job, Limit
from tests.app import ledger_tasks as tasks
from tests.support.commands import SLOW, Command
from tests.support.havoc import Havoc
from tests.support.ledger import FILE, Kill, Run, read
from tests.support.rates import most_in_window
from tests.support.workers import until

from .test_ledger import at_work, waiting

SECONDS = float(os.environ.get("LEDGER_LIMIT_SECONDS", "20"))
SEED = int(os.environ.get("LEDGER_SEED") or random.randrange(2**32))

COMMANDS = 2
BACKLOG = 600  # jobs that are not over, at most
PAUSE = (0.4, 1.6)  # seconds between two kills
LEAST_UP = 2  # workers that must be up before a kill; otherwise a slow machine would only start processes
SUPERVISORS = 6  # each sixth kill hits a supervisor
LONGER = 5.0  # seconds that are added while a limit was not reached yet, because the machine is busy
LONGEST = 3  # times SECONDS

#: Each task, its limit, and how many keys it has.
LIMITS = {tasks.few: (1, 4), tasks.many: (1, 200), tasks.three: (3, 3), tasks.ten: (10, 1)}

RATE, BURST = 25, 5  # starts in a second, of each key
RATED_KEYS = 2
RATED_BACKLOG = 60  # jobs that wait for their rate, at most, so that they do not make the run longer
WINDOWS = (0.1, 1.0, 5.0)  # seconds
LATE = 0.25
"""Seconds from the decision of a claim to the stamps in its rows, at most, on a busy machine."""
ENOUGH = 0.75 * RATE  # starts in a second: the rate was reached

MOST = {task.module_path: limit for task, (limit, _) in LIMITS.items()}


class Interval(NamedTuple):
    """When a run was certainly running."""

    begin: float
    end: float
    run: Run | None = None


class Work:
    """The jobs to run, and the key of each."""

    def __init__(self, choice: random.Random) -> None:
        self.key_of: dict[int, tuple[str, int]] = {}
        """The path of the task, and its key, by the number of a job."""
        self._choice = choice

    def enqueue(self) -> None:
        """Enqueue some jobs in one transaction, in bulk or one by one. Each tenth is rolled back, and of
        each tenth the waiting jobs are cancelled."""
        rated = waiting().filter(task_path=tasks.rated.module_path).count() < RATED_BACKLOG
        among = {**LIMITS, tasks.rated: (1, RATED_KEYS)} if rated else LIMITS
        if self._choice.random() < 0.5:  # many of one task at once reach its limit
            among = dict([self._choice.choice(list(among.items()))])
        calls = [self._call(among) for _ in range(self._choice.choice([1, 3, 30]))]
        with transaction.atomic():
            if self._choice.random() < 0.5:
                enqueue_many(calls)
            else:
                for call in calls:
                    enqueue_many([call])
            if self._choice.random() < 0.1:
                Job.objects.filter(pk__in=list(waiting().values_list("pk", flat=True)[:5])).cancel()
                transaction.set_rollback(self._choice.random() < 0.5)
            elif self._choice.random() < 0.1:
                transaction.set_rollback(True)

    def _call(self, among: Mapping[Task[..., Any], tuple[int, int]]) -> BoundTask:
        task = self._choice.choice(list(among))
        key = self._choice.randrange(among[task][1])
        number = len(self.key_of)
        self.key_of[number] = (task.module_path, key)
        longest = 0.03 * among[task][0] ** 1.5  # so that the slots of each limit are in use at the same time
        seconds = self._choice.random() ** 3 * longest
        queue_name = self._choice.choice(["default"] * 4 + ["mail"])
        return task.using(queue_name=queue_name).bind(number, key, seconds)


@pytest.mark.ledger
@pytest.mark.timeout(600 + 4 * SECONDS)
def test_limits_hold_while_processes_are_killed(start: Callable[..., Command], tmp_path: Path) -> None:
    print(f"LEDGER_SEED={SEED}")
    choice = random.Random(SEED)
    havoc, work, ledger = Havoc(), Work(random.Random(SEED)), tmp_path / "ledger"

    def start_one() -> Command:
        return start("--processes", "2", "--threads", "4", env={FILE: str(ledger)}, CRASH_LIMIT=1000)

    commands = [start_one() for _ in range(COMMANDS)]
    until(lambda: len(at_work(commands)) == 2 * COMMANDS, seconds=SLOW, what="the workers")
    began, next_kill = time.monotonic(), 0.0
    ends = began + SECONDS
    while time.monotonic() < ends:
        if waiting().count() < BACKLOG:
            work.enqueue()
        if time.monotonic() >= next_kill and kill_one(havoc, commands, start_one, choice):
            next_kill = time.monotonic() + choice.uniform(*PAUSE)
        time.sleep(0.005)
        if ends <= time.monotonic() < began + LONGEST * SECONDS:
            shown = Shown(read(ledger), havoc.kills, work)
            ends += 0.0 if shown.reached == MOST and shown.starts[1.0] >= ENOUGH else LONGER
    until(lambda: not waiting().exists(), seconds=8 * SLOW, what="all jobs are over")
    for command in commands:
        assert command.process.poll() is None, command.log
        command.send(signal.SIGTERM)
    assert [command.wait() for command in commands] == [0] * COMMANDS

    declared = {limit.name: limit.running for limit in Limit.objects.all()}
    assert declared == {
        tasks.rated.module_path: None,
        **{task.module_path if task is not tasks.ten else "ten": most for task, (most, _) in LIMITS.items()},
    }
    assert set(Job.objects.values_list("status", flat=True)) <= {"done", "cancelled"}
    check(Shown(read(ledger), havoc.kills, work), havoc.kills)


def kill_one(
    havoc: Havoc, commands: list[Command], start_one: Callable[[], Command], choice: random.Random
) -> bool:
    """Kill a worker process, or a supervisor, which is started again. Do nothing while too few are up."""
    up = at_work(commands)
    if len(up) < LEAST_UP:
        return False
    place, pid = choice.choice(up)
    if len(havoc.kills) % SUPERVISORS == SUPERVISORS - 1:
        havoc.kill(commands[place].process.pid, is_supervisor=True)
        commands[place].process.wait()
        commands[place] = start_one()
    else:
        havoc.kill(pid)
    return True


class Shown:
    """What a ledger shows."""

    def __init__(self, runs: Sequence[Run], kills: Sequence[Kill], work: Work) -> None:
        self.runs = runs
        intervals: dict[tuple[str, int], list[Interval]] = defaultdict(list)
        claims: dict[int, list[datetime]] = defaultdict(list)
        for run in sorted(runs, key=lambda run: run.claimed):
            path, key = work.key_of[run.number]
            if path == tasks.rated.module_path:
                claims[key].append(datetime.fromtimestamp(run.claimed, UTC))
                continue
            end = ended(run, kills)
            if end is not None and end >= run.began:
                intervals[path, key].append(Interval(run.began, end, run))
        self.keys = len(intervals) + len(claims)
        self.reached: dict[str, int] = defaultdict(int)
        """How many jobs of a key ran at once, at most, by the path of the task."""
        for (path, _), found in intervals.items():
            most = at_once(found)
            self.reached[path] = max(self.reached[path], most)
            if most > MOST[path]:
                print(f"{path}: more at once than its limit:", *crowd(found), sep="\n  ")
        self.starts = {
            window: max(
                (most_in_window(each, timedelta(seconds=window)) for each in claims.values()), default=0
            )
            for window in WINDOWS
        }
        """How many jobs of a key were claimed in a window of time, at most."""


def check(shown: Shown, kills: Sequence[Kill]) -> None:
    """Compare what the ledger shows with the limits. A claim is charged to a rate even if its worker dies
    before the jobs begin, so there may be fewer starts than allowed.
    """
    cut_off = sum(run.ended is None for run in shown.runs)
    print(f"{len(shown.runs):,} runs, {shown.keys} keys, {len(kills)} kills, {cut_off} runs cut off")
    print("Most at once:")
    for path, count in sorted(shown.reached.items()):
        print(f"  {path.rpartition('.')[2]}: {count} of {MOST[path]}")
    print("Most starts of a rate in a window:")
    for window, count in shown.starts.items():
        print(f"  {window:g} s: {count}, {BURST + RATE * window:g} are allowed")
    assert {path: count for path, count in shown.reached.items() if count > MOST[path]} == {}
    over = [each for each, count in shown.starts.items() if count > BURST + RATE * (each + LATE)]
    assert over == []
    assert shown.reached == MOST, "each limit was reached, or the run shows nothing"
    assert shown.starts[1.0] >= ENOUGH, "the rate was reached, or the run shows nothing"
    assert kills
    assert cut_off


def ended(run: Run, kills: Iterable[Kill]) -> float | None:
    """Return until when a run was certainly running; None if it was killed, but it is not known when."""
    if run.ended is not None:
        return run.ended
    hits = [kill.before for kill in kills if kill.hit(run)]
    return min(hits, default=None)


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


def test_overlaps_are_counted() -> None:
    assert at_once([Interval(0, 2), Interval(1, 3), Interval(2, 4)]) == 2
    assert at_once([Interval(0, 2), Interval(2, 4)]) == 1
    assert at_once([]) == 0
