"""Run jobs with concurrency keys while processes are killed at random. The intervals of a ledger outside
the queue show that no key ever had more jobs at once than its limit, and that no job stays in its line.

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
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
from django.db import transaction

from django_pgqueue import enqueue_many
from django_pgqueue.definition import BoundTask
from django_pgqueue.models import Job, Limit
from tests.app import ledger_tasks as tasks
from tests.support.havoc import Havoc
from tests.support.ledger import FILE, Kill, Run, read
from tests.support.workers import until

from .conftest import SLOW, Command
from .test_ledger import at_work, waiting

SECONDS = float(os.environ.get("LEDGER_LIMIT_SECONDS", "20"))
SEED = int(os.environ.get("LEDGER_SEED") or random.randrange(2**32))

COMMANDS = 2
BACKLOG = 600  # jobs that are not over, at most
PAUSE = (0.4, 1.6)  # seconds between two kills
LEAST_UP = 2  # workers that must be up before a kill; otherwise a slow machine would only start processes
SUPERVISORS = 6  # each sixth kill hits a supervisor

#: Each task, its limit, and how many keys it has.
LIMITS = {tasks.few: (1, 4), tasks.many: (1, 200), tasks.three: (3, 3), tasks.ten: (10, 1)}


class Interval(NamedTuple):
    """When a run was certainly running."""

    begin: float
    end: float


class Work:
    """The jobs to run, and the key of each."""

    def __init__(self, choice: random.Random) -> None:
        self.key_of: dict[int, tuple[str, int]] = {}
        """The path of the task, and its key, by the number of a job."""
        self._choice = choice

    def enqueue(self) -> None:
        """Enqueue some jobs in one transaction, in bulk or one by one. Each tenth is rolled back, and of
        each tenth the waiting jobs are cancelled."""
        calls = [self._call() for _ in range(self._choice.choice([1, 3, 30]))]
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

    def _call(self) -> BoundTask:
        task = self._choice.choice(list(LIMITS))
        key = self._choice.randrange(LIMITS[task][1])
        number = len(self.key_of)
        self.key_of[number] = (task.module_path, key)
        longest = 0.03 * LIMITS[task][0] ** 1.5  # so that the slots of each limit are in use at the same time
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
    ends = time.monotonic() + SECONDS
    next_kill = 0.0
    while time.monotonic() < ends:
        if waiting().count() < BACKLOG:
            work.enqueue()
        if time.monotonic() >= next_kill and kill_one(havoc, commands, start_one, choice):
            next_kill = time.monotonic() + choice.uniform(*PAUSE)
        time.sleep(0.005)
    until(lambda: not waiting().exists(), seconds=8 * SLOW, what="all jobs are over")
    for command in commands:
        assert command.process.poll() is None, command.log
        command.send(signal.SIGTERM)
    assert [command.wait() for command in commands] == [0] * COMMANDS

    declared = {limit.name: limit.running for limit in Limit.objects.all()}
    assert declared == {
        task.module_path if task is not tasks.ten else "ten": most for task, (most, _) in LIMITS.items()
    }
    assert set(Job.objects.values_list("status", flat=True)) <= {"done", "cancelled"}
    check(read(ledger), havoc.kills, work)


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


def check(runs: Sequence[Run], kills: Sequence[Kill], work: Work) -> None:
    """Compare how many jobs of each key ran at once with its limit."""
    most = {task.module_path: limit for task, (limit, _) in LIMITS.items()}
    intervals: dict[tuple[str, int], list[Interval]] = defaultdict(list)
    for run in runs:
        end = ended(run, kills)
        if end is not None and end >= run.began:
            intervals[work.key_of[run.number]].append(Interval(run.began, end))
    reached: dict[str, int] = defaultdict(int)
    for (path, _), found in intervals.items():
        reached[path] = max(reached[path], at_once(found))
    cut_off = sum(run.ended is None for run in runs)
    print(f"{len(runs):,} runs, {len(intervals)} keys, {len(kills)} kills, {cut_off} runs cut off")
    print("Most at once:")
    for path, count in sorted(reached.items()):
        print(f"  {path.rpartition('.')[2]}: {count} of {most[path]}")
    assert {path: count for path, count in reached.items() if count > most[path]} == {}
    assert reached == most, "each limit was reached, or the run shows nothing"
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


def test_overlaps_are_counted() -> None:
    assert at_once([Interval(0, 2), Interval(1, 3), Interval(2, 4)]) == 2
    assert at_once([Interval(0, 2), Interval(2, 4)]) == 1
    assert at_once([]) == 0
