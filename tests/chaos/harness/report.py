"""The report of a run: figures, and the verdict of the ledger."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from .accounts import Accounts, by_job
from .audit import Audit
from .ledger import COMMITTED, IN_DOUBT, ROLLED_BACK

__all__ = ["Recovered", "Report", "recoveries"]


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
