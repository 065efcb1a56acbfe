"""The stage of a run: a database, worker commands, a load, and the ledger that all of them write to.

The database is the default one of Django, which a world may have replaced (``worlds``).
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from django_pgqueue.models import Job, Worker
from django_pgqueue.tasks.task import Task
from tests.app import ledger_tasks as tasks
from tests.support.commands import ROOT, SLOW, Command, Start
from tests.support.waiting import until

from .havoc import Havoc, descendants, end
from .ledger import FOLDER, Accounts, Ledger, Reader, Run
from .load import Load

if TYPE_CHECKING:
    from .scenario import Scenario

PATIENCE = 2 * SLOW
"""Seconds to wait for what must happen. Several scenarios may run on a busy machine."""
Effect = Task[[int, float], Any]
OUTSIDE: tuple[Effect, ...] = (tasks.sync_effect, tasks.async_effect)
"""Tasks that have no transaction open while they run."""
EFFECTS: tuple[Effect, ...] = (*OUTSIDE, tasks.atomic_effect)
NO_LIMIT = {"CRASH_LIMIT": 1000}
"""Random kills hit jobs that did nothing wrong, and some of them many times."""


class Stage:
    """What a scenario acts on."""

    def __init__(self, start: Start, folder: Path, world: Any, scenario: Scenario, choice: Random) -> None:
        self.world = world
        """What the scenario's world has yielded, such as a server that can be stopped."""
        self.choice = choice
        """What is random in the run, from its seed."""
        self.ledger = Ledger(folder / "ledger")
        self.havoc = Havoc(self.ledger)
        self.load = Load(
            self.ledger, Random(choice.random()), rate=scenario.rate, backlog=scenario.backlog,
            mix=scenario.mix,
        )  # fmt: skip
        self.commands: list[Command] = []
        """The commands that should be running."""
        self.started: list[Command] = []
        """All commands so far."""
        self.env: dict[str, str] = dict(getattr(world, "env", {}))
        """Environment variables of the commands, besides that of the ledger. A world may give some."""
        self.measured: dict[str, list[float]] = defaultdict(list)
        """Seconds that the scenario has measured, by what they are about, for the report."""
        self._reader = Reader(self.ledger.folder)
        self._start = start
        self._scenario = scenario

    def start(self, *, code: Path = ROOT, **settings: Any) -> Command:
        """Start one more command, with the code of a folder. `settings` replace those of the scenario."""
        arguments = ("--processes", str(self._scenario.processes), *self._scenario.arguments)
        env = {FOLDER: str(self.ledger.folder), **self.env}
        settings = {**NO_LIMIT, **self._scenario.settings, **settings}
        command = self._start(*arguments, env=env, code=code, **settings)
        self.commands.append(command)
        self.started.append(command)
        return command

    def start_all(self) -> None:
        """Start the commands, and wait until all their processes have registered."""
        for _ in range(self._scenario.commands):
            self.start()
        self.all_up()

    def end(self, command: Command) -> None:
        """Tell a command to end, and wait until it has ended without an error."""
        self.commands.remove(command)
        end(command)

    def kill(self, command: Command, kind: str = "killed supervisor") -> None:
        """Kill the supervisor of a command, and with it its processes."""
        self.commands.remove(command)
        self.havoc.kill(command.process.pid, kind=kind, is_supervisor=True)
        command.process.wait(SLOW)

    def at_work(self) -> list[int]:
        """Return the ids of the worker processes that are up, those of each command together."""
        registered = set(Worker.objects.values_list("pid", flat=True))
        return [
            pid for command in self.commands for pid in sorted(registered & descendants(command.process.pid))
        ]

    def all_up(self) -> None:
        """Wait until all processes are up, and no dead ones are registered. No command may have ended."""
        count = self._scenario.processes * len(self.commands)
        registered: list[Any] = []

        def are_up() -> bool:
            for command in self.commands:
                assert command.process.poll() is None, command.log
            columns = "id", "pid", "supervisor", "heartbeat_at", "holds_lock"
            registered[:] = Worker.objects.values_list(*columns)
            return len(self.at_work()) == len(registered) == count

        try:
            until(are_up, seconds=PATIENCE, what=f"{count} workers and no dead")
        except AssertionError as error:
            error.add_note(f"registered: {registered}")
            raise

    def all_over(self) -> None:
        """Wait until no job waits or runs."""
        until(lambda: not Job.objects.filter(shelf=0).exists(), seconds=PATIENCE, what="the end of all jobs")

    def accounts(self) -> Accounts:
        """Read the ledger."""
        return self._reader.read()

    def measure(self, events: Mapping[str, Callable[[], object]], seconds: float = PATIENCE) -> None:
        """Wait until each of these has returned true, and record after how many seconds it has first."""
        began = time.monotonic()
        left = dict(events)

        def all_happened() -> bool:
            for name, happened in list(left.items()):
                if happened():
                    self.measured[name].append(time.monotonic() - began)
                    del left[name]
            return not left

        try:
            until(all_happened, seconds=seconds)
        except AssertionError as error:
            raise AssertionError(f"not within {seconds:g} s: {', '.join(left)}") from error

    def occupy(self, seconds: float = 3.0, *kinds: Effect) -> Run:
        """Enqueue a job that takes some seconds, wait until it has begun, and return its run."""
        task = self.choice.choice(kinds or EFFECTS)
        task = task.using(priority=10)  # whether it runs again does not depend on how many others wait
        return self.begun(self.load.enqueue(lambda number: task.bind(number, seconds)))

    def begun(self, number: int) -> Run:
        """Wait until the job of this number has begun, and return its last run."""
        return until(
            lambda: next((run for run in reversed(self.accounts().runs) if run.number == number), None),
            seconds=PATIENCE,
            what=f"job number {number} begins",
        )

    def run_after(self, run: Run) -> Run | None:
        """Return the run for which the job of this run was claimed again, if it has begun."""
        runs = self.accounts().runs
        return next((each for each in runs if each.job == run.job and each.claimed > run.claimed), None)

    def over(self, number: int) -> Job:
        """Wait until the job of this number is over, and return it."""
        return until(
            lambda: Job.objects.filter(args__0=number, finished_at__isnull=False).first(),
            seconds=PATIENCE,
            what=f"job number {number} is over",
        )
