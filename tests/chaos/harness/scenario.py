"""A scenario: the faults that try what users are promised, their run under load, and its report.

The load runs all the time. The short form makes each fault as often as the scenario says, in a random order.
The long form goes on until its time is over. Then all jobs must come to their end, the commands are stopped,
and the ledger must balance. ``docs/explanation/reliability.md`` says what users should expect of each.
"""

from __future__ import annotations

import os
import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf
from pathlib import Path
from random import Random
from typing import Any

from tests.support.commands import Start

from .audit import Audit, abandoned, left_behind
from .ledger import COMMITTED, IN_DOUBT, ROLLED_BACK, Accounts, by_job
from .load import Mix, mixed
from .stage import Stage

Act = Callable[[Stage], None]
"""Makes a fault, and waits until what is expected of it can be seen. Then all processes must come up."""

PATIENCE = float(os.environ.get("CHAOS_PATIENCE") or "inf")
"""The multiple of the promised time in which all jobs must run again. A busy machine is slow."""


@dataclass(frozen=True)
class Scenario:
    """A scenario, named as on the page."""

    name: str
    faults: tuple[Act, ...]
    """The short form makes each of these once. Name one twice to make it twice."""
    promises: tuple[str, ...] = ()
    """What it holds of `tests/promises.toml`."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """PGQUEUE of the workers."""
    arguments: tuple[str, ...] = ("--threads", "4")
    """Arguments of each command."""
    commands: int = 2
    processes: int = 1
    """Worker processes of each command. Each start of one takes a second of processor time."""
    rate: float = 25.0
    """Jobs that are enqueued in a second."""
    backlog: int = 40
    mix: Mix = mixed
    within: Mapping[str, float] = field(default_factory=dict)
    """The promised seconds of recovery, by the kind of fault, and those of what the scenario measures."""
    world: Callable[[Path], AbstractContextManager[Any]] = nullcontext
    """The database, if it is not that of the tests, and what it yields is `stage.world`."""
    lacks: Callable[[], str] = str
    """Returns what this machine lacks, such as "pgbouncer", or nothing. Then the scenario is skipped, with
    CI=true it fails."""
    check: Callable[[Stage, Audit], list[str]] | None = None
    """Returns problems besides those that the audit finds."""


@dataclass(frozen=True)
class Report:
    """What a run of a scenario has shown. It is balanced if there are no problems."""

    name: str
    seed: int
    seconds: float
    figures: list[str]
    recovered: list[str]
    """How long recovery took, and what the scenario itself has measured."""
    problems: list[str]

    def __str__(self) -> str:
        verdict = f"NOT BALANCED, {len(self.problems)} problems" if self.problems else "balanced"
        head = f"{self.name}: {verdict} after {self.seconds:.0f} s (seed {self.seed})"
        problems = (f"PROBLEM: {problem}" for problem in self.problems[:20])
        return "\n  ".join([head, *self.figures, *self.recovered, *problems])


def perform(
    scenario: Scenario, start: Start, folder: Path, *, seed: int, seconds: float | None = None
) -> Report:
    """Run a scenario, for so many seconds or in its short form, and return the report."""
    began = time.monotonic()
    choice = Random(f"{seed}, {scenario.name}")
    with scenario.world(folder) as world:
        stage = Stage(start, folder, world, scenario, choice)
        stage.start_all()
        with stage.load.running():
            for act in _acts(scenario, choice, seconds):
                time.sleep(choice.uniform(0.2, 1.0))
                act(stage)
                stage.all_up()
        stage.all_over()
        stage.all_up()
        problems = abandoned()
        for command in list(stage.commands):
            stage.end(command)
        audit = Audit(stage.accounts())
        recovered, too_late = _times(scenario, stage, audit.accounts)
        problems += audit.problems + left_behind(audit.accounts) + too_late
        if scenario.check is not None:
            problems += scenario.check(stage, audit)
    spent = time.monotonic() - began
    return Report(scenario.name, seed, spent, [*_figures(audit)], recovered, problems)


def _acts(scenario: Scenario, choice: Random, seconds: float | None) -> Iterator[Act]:
    """Yield the faults of the short form, or faults until the time is over."""
    if seconds is None:
        yield from choice.sample(scenario.faults, len(scenario.faults))
        return
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        yield choice.choice(scenario.faults)


def _times(scenario: Scenario, stage: Stage, accounts: Accounts) -> tuple[list[str], list[str]]:
    """Return how long recovery, and what the scenario has measured, took, and what took too long."""
    found = [(kind, f"recovery from {kind}", PATIENCE, took) for kind, took in recoveries(accounts).items()]
    found += [(what, what, 1.0, took) for what, took in stage.measured.items()]
    lines, problems = [], []
    for kind, what, patience, took in sorted(found):
        within = scenario.within.get(kind, inf)
        promise = "" if within == inf else f", promised within {within:g} s"
        lines.append(
            f"{what}: p50 {statistics.median(took):.2f} s, max {max(took):.2f} s of {len(took)}{promise}"
        )
        if max(took) > patience * within:
            problems.append(f"{what} took {max(took):.2f} s")
    return lines, problems


def recoveries(accounts: Accounts) -> dict[str, list[float]]:
    """Return the seconds of recovery by the kind of fault.

    For a fault that hit certain processes, that is the time until each job that it cut off runs again. For
    one that hit everybody, it is the time from its end until the first job is done.
    """
    seconds: dict[str, list[float]] = defaultdict(list)
    for runs in by_job(accounts.runs).values():
        for first, second in pairwise(runs):
            if second.attempt != first.attempt:
                continue
            hits = [fault for fault in accounts.faults if fault.pids and fault.explains_again(first, second)]
            if hits:
                seconds[hits[-1].kind].append(second.began - hits[-1].before)
    for fault in accounts.faults:
        if fault.pids is None:
            ends = [run.ended for run in accounts.runs if run.ended and run.ended > fault.after]
            if ends:
                seconds[fault.kind].append(min(ends) - fault.after)
    return seconds


def _figures(audit: Audit) -> Iterator[str]:
    accounts = audit.accounts
    outcomes = Counter(transaction.outcome for transaction in accounts.transactions)
    yield (
        f"{len(audit.rows):,} jobs; {sum(outcomes.values()):,} transactions:"
        f" {outcomes[COMMITTED]:,} committed, {outcomes[ROLLED_BACK]:,} rolled back,"
        f" {outcomes[IN_DOUBT]:,} in doubt; {len(accounts.runs):,} runs"
    )
    kinds = Counter(fault.kind for fault in accounts.faults)
    yield f"{len(accounts.faults)} faults: {', '.join(f'{count} {kind}' for kind, count in kinds.items())}"
    reasons = Counter(kind for _, _, kind in audit.duplicates)
    told = ", ".join(f"{count} by {kind}" for kind, count in reasons.items())
    yield (
        f"{len(audit.duplicates)} duplicates{f': {told}' if told else ''};"
        f" {audit.late} of them had come to their end"
    )
