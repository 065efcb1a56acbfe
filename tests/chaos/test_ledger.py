"""Run many jobs while processes are killed at random. A ledger outside the queue shows that no job is lost.

python3 dev.py ledger                      the short form; it leaves no processor time for other tests
LEDGER_JOBS=200000 LEDGER_SECONDS=900      environment variables for the long form
LEDGER_SEED=...                            repeats the random choices of a run that failed

The seed decides how long each job takes, the pause before each kill, and which process it hits. The first
kills hit a process that has just started a long job, until one run was certainly cut off. What the processes
are doing at a kill depends on the machine, so a seed repeats the choices of a run, but not the run itself.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from django.db.models import QuerySet

from django_pgqueue import enqueue_many
from django_pgqueue.definition import BoundTask
from django_pgqueue.models import Job, Worker
from tests.app import ledger_tasks as tasks
from tests.app.models import Entry
from tests.support.commands import SLOW, Command
from tests.support.havoc import Havoc, descendants
from tests.support.ledger import FILE, Kill, by_job, certain_crashes, read, unexplained
from tests.support.workers import until

JOBS = int(os.environ.get("LEDGER_JOBS", "4000"))
SECONDS = float(os.environ.get("LEDGER_SECONDS", "10"))  # the time in which the jobs are enqueued
SEED = int(os.environ.get("LEDGER_SEED") or random.randrange(2**32))

BATCH = 100  # jobs in one enqueue; JOBS is a multiple of it
BACKLOG = 2_000  # maximum number of waiting jobs
# Seconds between two kills: more than TOGETHER, or the processes of one supervisor would count no crash.
PAUSE = (2.5, 5.5)
KILLS = max(5, JOBS // 2_000)  # minimum number of kills
# Otherwise a slow machine would only start processes. Before a kill, at least LEAST_UP of the four workers
# must be up, and at most MOST_HIT jobs that were hit before may be waiting, because each needs a separate
# process.
LEAST_UP = 3
MOST_HIT = 8
SUPERVISORS = 5  # each fifth kill hits a supervisor
PROCESSES = 2  # worker processes of each of the two commands
LONG = max(0.002, 10 / JOBS)  # share of the jobs that take seconds; the others take milliseconds

# The defaults except for one: random kills hit jobs that did nothing wrong, and some of them many times.
SETTINGS = {"CRASH_LIMIT": 1000}


class Plan:
    """What the seed decides about a kill. It depends only on the number of the kill."""

    def __init__(self, number: int) -> None:
        choice = random.Random(f"{SEED}, {number}")
        self.pause = choice.uniform(*PAUSE)
        """Seconds since the previous kill."""
        self.place = choice.randrange(2)
        """The place of the command."""
        self.process = choice.randrange(PROCESSES)
        """The place of the process among those of the command, ordered by their ids."""


class Work:
    """The jobs to run: a third of them are sync, a third async, and a third atomic."""

    def __init__(self, count: int, choice: random.Random) -> None:
        entries = Entry.objects.bulk_create([Entry(key="atomic", note="0") for _ in range(count)])
        self.entries = [entry.pk for entry in entries]
        self.number_of: dict[int, int] = {}
        """The number of each job that was enqueued."""
        self.long: set[int] = set()
        """The numbers of the jobs that take seconds."""
        self._count = count
        self._choice = choice

    @property
    def is_enqueued(self) -> bool:
        """Whether all jobs are in the queue."""
        return len(self.number_of) == self._count

    def enqueue(self, count: int) -> None:
        """Enqueue the next jobs."""
        begin = len(self.number_of)
        numbers = range(begin, min(begin + count, self._count))
        self.number_of |= zip(enqueue_many(map(self._call, numbers)), numbers, strict=True)

    def _call(self, number: int) -> BoundTask:
        is_long = self._choice.random() < LONG
        seconds = 2.0 if is_long else self._choice.uniform(0.0, 0.005)
        if is_long:
            self.long.add(number)
        if number % 3 == 0:
            return tasks.sync_effect.bind(number, seconds)
        if number % 3 == 1:
            return tasks.async_effect.bind(number, seconds)
        return tasks.atomic_effect.bind(number, seconds, self.entries[number])


@pytest.mark.ledger
@pytest.mark.timeout(600 + 4 * SECONDS)
def test_jobs_survive_random_kills(start: Callable[..., Command], tmp_path: Path) -> None:
    print(f"LEDGER_SEED={SEED}")
    havoc = Havoc()
    work = Work(JOBS, random.Random(SEED))
    ledger = tmp_path / "ledger"

    def start_one() -> Command:
        arguments = ("--processes", str(PROCESSES), "--threads", "4")
        return start(*arguments, env={FILE: str(ledger)}, **SETTINGS)

    commands = [start_one(), start_one()]
    until(lambda: len(at_work(commands)) == 4, seconds=SLOW, what="4 workers")
    began = time.monotonic()
    next_kill = began
    is_cut_off = False
    while not work.is_enqueued or len(havoc.kills) < KILLS:
        now = time.monotonic()
        for command in commands:
            assert command.process.poll() is None, command.log
        due = round(JOBS * min(1.0, (now - began) / SECONDS)) - len(work.number_of)
        in_time = now < began + 1.5 * SECONDS  # after that, the rest is enqueued at once
        if due >= BATCH and not (in_time and waiting().count() > BACKLOG):
            work.enqueue(BATCH)
        if now >= next_kill:
            # Until one run was certainly cut off, a kill is aimed at such a run.
            among = None if is_cut_off or work.is_enqueued else in_the_middle(ledger, work.long)
            if kill_one(havoc, commands, start_one, among):
                next_kill = time.monotonic() + Plan(len(havoc.kills)).pause
                is_cut_off = is_cut_off or cut_off(ledger, havoc.kills[-1])
        time.sleep(0.1)
    until(lambda: not waiting().exists(), seconds=8 * SLOW, what="all jobs are over")
    print(f"{JOBS:,} jobs are over after {time.monotonic() - began:.0f} s")
    # The row of a killed worker without jobs stays until another supervisor finds the worker dead.
    until(
        lambda: len(at_work(commands)) == Worker.objects.count() == 4,
        seconds=SLOW,
        what="4 workers and no dead",
    )
    for command in commands:
        assert command.process.poll() is None, command.log
        command.send(signal.SIGTERM)
    assert [command.wait() for command in commands] == [0, 0]
    assert not Worker.objects.exists()
    check(ledger, havoc, work)


def at_work(commands: list[Command]) -> list[tuple[int, int]]:
    """Return the worker processes that are up: the place of their command, and their ids."""
    registered = set(Worker.objects.values_list("pid", flat=True))
    return [
        (place, pid)
        for place, command in enumerate(commands)
        for pid in sorted(registered & descendants(command.process.pid))
    ]


def waiting() -> QuerySet[Job]:
    """The jobs that are not over."""
    return Job.objects.filter(shelf=0)


def in_the_middle(ledger: Path, numbers: set[int]) -> set[int]:
    """Return the processes in which one of these long jobs has just started."""
    recently = time.monotonic() - 0.5
    runs = read(ledger) if ledger.exists() else []
    return {run.pid for run in runs if run.number in numbers and not run.ended and run.began > recently}


def cut_off(ledger: Path, kill: Kill) -> bool:
    """Return whether this kill cut off a run."""
    return any(not run.ended and run.pid in kill.pids for run in read(ledger))


def kill_one(
    havoc: Havoc, commands: list[Command], start_one: Callable[[], Command], among: set[int] | None
) -> bool:
    """Kill a worker process, or a supervisor, which is started again. Do nothing while too few are up.

    It hits whom the seed says, once that one is up; with `among`, the first of those.
    """
    up = at_work(commands)
    plan = Plan(len(havoc.kills))
    if among is None:
        targets = [(place, pid) for place, pid in up if place == plan.place][plan.process :]
    else:
        targets = [(place, pid) for place, pid in up if pid in among]
    hit_before = waiting().filter(crash_count__gt=0).count()
    if len(up) < LEAST_UP or not targets or hit_before > MOST_HIT:
        return False
    place, pid = targets[0]
    if len(havoc.kills) % SUPERVISORS == SUPERVISORS - 1:
        havoc.kill(commands[place].process.pid, is_supervisor=True)
        commands[place].process.wait()
        commands[place] = start_one()
    else:
        havoc.kill(pid)
    return True


def check(ledger: Path, havoc: Havoc, work: Work) -> None:
    """Compare the queue, the ledger, the kills and the enqueued jobs."""
    runs = read(ledger)
    runs_of = by_job(runs)
    kills = havoc.kills
    jobs = {job.pk: job for job in Job.objects.all()}
    assert len(jobs) == Job.objects.count() == JOBS, "no job is there twice"
    assert jobs.keys() == work.number_of.keys() == runs_of.keys()

    # Each effect happened at least once, and each atomic effect exactly once.
    assert {run.number for run in runs if run.ended} == set(range(JOBS))
    assert all(run.number == work.number_of[run.job] for run in runs)
    atomic = set(work.entries[2::3])
    assert Counter(Entry.objects.filter(pk__in=atomic).values_list("note", flat=True)) == {"1": len(atomic)}

    # Each job is done by its last run, because no job runs again after it was reported.
    assert Counter((job.status, job.attempts, len(job.errors)) for job in jobs.values()) == {
        ("done", 1, 0): JOBS
    }
    last = {pk: runs_of[pk][-1] for pk in jobs}
    assert [pk for pk, job in jobs.items() if not last[pk].ended or last[pk].lease != job.lease] == []

    # Each second run is due to a kill, and counts a crash if a supervisor could see it.
    strange = unexplained(runs, kills)
    for first, second in strange:
        between = [kill for kill in kills if first.began < kill.after and kill.before < second.began]
        print(first, second, *between, sep="\n")
    assert not strange
    certain = {pk: certain_crashes(runs_of[pk], kills) for pk in jobs}
    assert [pk for pk, job in jobs.items() if job.crash_count < certain[pk]] == []
    # The run that a crash counts is in the ledger, unless it was killed on the way to its first line: a
    # connection may have to be made, or a process that the job has for itself; in each of four threads.
    excess = sum(max(0, job.crash_count - (len(runs_of[pk]) - 1)) for pk, job in jobs.items())
    assert excess <= 4 * sum(len(kill.pids) for kill in kills)

    # The kills did hit running jobs.
    again = sum(len(runs) - 1 for runs in runs_of.values())
    supervisors = sum(kill.is_supervisor for kill in kills)
    print(f"{len(kills)} kills, {supervisors} of supervisors; {again} runs more than jobs, {excess} unseen")
    assert supervisors
    assert any(not run.ended for run in runs)
