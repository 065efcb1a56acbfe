"""A scenario: what a user should expect, the faults that try it, and the run of both.

The load runs all the time. The short form makes each fault as often as the scenario says, in a random order.
The long form goes on until its time is over. Then all jobs must come to their end, the commands are stopped,
and the ledger must balance.
"""

from __future__ import annotations

import os
import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

from tests.support.commands import Command

from .audit import Audit, abandoned, left_behind
from .ledger import COMMITTED, IN_DOUBT, ROLLED_BACK, Accounts, by_job
from .load import Mix, mixed
from .stage import Stage
from .worlds import the_tests_database


@dataclass(frozen=True)
class Recovered:
    """Seconds that were measured, of which kind of recovery, and how many are promised, if any are."""

    what: str
    seconds: list[float]
    within: float | None

    def __str__(self) -> str:
        promise = "" if self.within is None else f", promised within {self.within:g} s"
        return (
            f"{self.what}: p50 {statistics.median(self.seconds):.2f} s, max {max(self.seconds):.2f} s"
            f" of {len(self.seconds)}{promise}"
        )


@dataclass(frozen=True)
class Report:
    """What a run of a scenario has shown. It is balanced if there are no problems."""

    name: str
    expects: str
    seed: int
    seconds: float
    figures: list[str]
    problems: list[str]
    recovered: list[Recovered]

    @classmethod
    def of(
        cls,
        name: str,
        expects: str,
        seed: int,
        seconds: float,
        audit: Audit,
        problems: Sequence[str],
        within: Mapping[str, float],
        measured: Mapping[str, Sequence[float]],
    ) -> Report:
        """Write the report of an audit. ``measured``: what the scenario itself has measured."""
        found = [(kind, each, f"recovery from {kind}") for kind, each in recoveries(audit.accounts).items()]
        found += [(what, list(each), what) for what, each in measured.items()]
        recovered = [Recovered(what, each, within.get(kind)) for kind, each, what in sorted(found)]
        figures = [*_figures(audit), *map(str, recovered)]
        return cls(name, expects, seed, seconds, figures, list(problems), recovered)

    def __str__(self) -> str:
        verdict = "balanced" if not self.problems else f"NOT BALANCED, {len(self.problems)} problems"
        lines = [f"{self.name}: {verdict} after {self.seconds:.0f} s (seed {self.seed})"]
        lines += [f"  expected: {' '.join(self.expects.split())}", *(f"  {line}" for line in self.figures)]
        lines += [f"  PROBLEM: {problem}" for problem in self.problems[:20]]
        return "\n".join(lines)


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


Act = Callable[[Stage], None]
"""Makes a fault, and waits until what the scenario expects of it can be seen."""

PATIENCE = float(os.environ.get("CHAOS_PATIENCE") or "inf")
"""The multiple of the promised time in which all jobs must run again. A busy machine is slow."""

NO_LIMIT = {"CRASH_LIMIT": 1000}
"""Random kills hit jobs that did nothing wrong, and some of them many times."""


@dataclass(frozen=True)
class Scenario:
    """A scenario. Write first what it `expects`."""

    name: str
    expects: str
    """What a user should expect."""
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
    pause: tuple[float, float] = (0.2, 1.0)
    """Seconds from one fault to the next, chosen by the seed."""
    within: Mapping[str, float] = field(default_factory=dict)
    """The promised seconds of recovery, by the kind of fault, and those of what the scenario measures."""
    world: Callable[[Path], AbstractContextManager[Any]] = the_tests_database
    """The database, and what it yields is `stage.world`."""
    lacks: Callable[[], str] = str
    """Returns what this machine lacks, such as "pgbouncer", or nothing. Then the scenario is skipped, with
    CI=true it fails."""
    check: Callable[[Stage, Audit], list[str]] | None = None
    """Returns problems besides those that the audit finds."""


def perform(
    scenario: Scenario,
    start: Callable[..., Command],
    folder: Path,
    *,
    seed: int,
    seconds: float | None = None,
) -> Report:
    """Run a scenario, for so many seconds or in its short form, and return the report."""
    began = time.monotonic()
    choice = Random(f"{seed}, {scenario.name}")
    with scenario.world(folder) as world:
        stage = Stage(
            start, folder, world, choice=choice, settings={**NO_LIMIT, **scenario.settings},
            arguments=scenario.arguments, commands=scenario.commands, processes=scenario.processes,
            rate=scenario.rate, backlog=scenario.backlog, mix=scenario.mix,
        )  # fmt: skip
        stage.start_all()
        with stage.load.running():
            acts = _acts(scenario, choice, seconds)
            while (act := next(acts, None)) is not None:
                time.sleep(choice.uniform(*scenario.pause))
                act(stage)
        audit, problems = _settle(scenario, stage)
    spent = time.monotonic() - began
    return Report.of(
        scenario.name, scenario.expects, seed, spent, audit, problems, scenario.within, stage.measured
    )


def _settle(scenario: Scenario, stage: Stage) -> tuple[Audit, list[str]]:
    """Let all jobs come to their end, stop the commands, and return what is wrong then."""
    stage.all_over()
    stage.all_up()
    problems = abandoned()
    for command in list(stage.commands):
        stage.end(command)
    accounts = stage.accounts()
    audit = Audit(accounts)
    problems += audit.problems + left_behind(accounts)
    problems += [
        f"recovery from {kind} took {max(found):.2f} s"
        for kind, found in recoveries(accounts).items()
        if max(found) > PATIENCE * scenario.within.get(kind, float("inf"))
    ]
    problems += [
        f"{what} after {max(found):.2f} s"
        for what, found in stage.measured.items()
        if max(found) > scenario.within.get(what, float("inf"))
    ]
    if scenario.check is not None:
        problems += scenario.check(stage, audit)
    return audit, problems


def _acts(scenario: Scenario, choice: Random, seconds: float | None) -> Iterator[Act]:
    """Yield the faults of the short form, or faults until the time is over."""
    if seconds is None:
        yield from choice.sample(scenario.faults, len(scenario.faults))
        return
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        yield choice.choice(scenario.faults)
