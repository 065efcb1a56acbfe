"""The arithmetic of a failover: what was confirmed and is lost, what ran again, how long nothing went on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise

from ..harness.accounts import Accounts
from ..harness.ledger import COMMITTED, IN_DOUBT

__all__ = ["Tally", "longest_gap"]


@dataclass(frozen=True)
class Tally:
    """Counts of jobs by their numbers: a lost job's id may be given again."""

    confirmed: int
    """Jobs whose transaction the server has confirmed to the client."""
    lost: int
    """Those of them that are not there."""
    in_doubt: int
    """Jobs whose client lost its connection before the answer."""
    in_doubt_there: int
    ran_although_lost: int
    """Jobs that are not there, but that have run: their effects outside the database remain."""
    ran_again: int
    """Jobs whose task came to its end more than once. If it is not atomic, it has its effect again."""
    effects_missing: int
    """Atomic jobs that are done without their effect in the database."""
    effects_repeated: int
    """Effects of atomic jobs in the database beyond the first one, and those of jobs that are not done."""
    unfinished: int
    """Jobs that are there and have not come to their end."""

    @classmethod
    def of(
        cls, accounts: Accounts, statuses: Mapping[int, str], atomic: set[int], effects: list[int]
    ) -> Tally:
        """Compare a ledger with the tables: the status of each job and the effects of the atomic ones."""
        numbers: dict[str, set[int]] = {COMMITTED: set(), IN_DOUBT: set()}
        for transaction in accounts.transactions:
            numbers.setdefault(transaction.outcome, set()).update(transaction.numbers)
        ended = Counter(run.number for run in accounts.runs if run.how == "done")
        done = {number for number in atomic if statuses.get(number) == "done"}
        found = Counter(effects)
        return cls(
            confirmed=len(numbers[COMMITTED]),
            lost=len(numbers[COMMITTED] - statuses.keys()),
            in_doubt=len(numbers[IN_DOUBT]),
            in_doubt_there=len(numbers[IN_DOUBT] & statuses.keys()),
            ran_although_lost=len(ended.keys() - statuses.keys()),
            ran_again=sum(count > 1 for count in ended.values()),
            effects_missing=len(done - found.keys()),
            effects_repeated=sum(count - (number in done) for number, count in found.items()),
            unfinished=sum(status not in {"done", "failed", "cancelled"} for status in statuses.values()),
        )

    def __str__(self) -> str:
        return (
            f"{self.confirmed:,} confirmed enqueues, {self.lost:,} of them lost"
            f" ({self.ran_although_lost:,} of the lost have run);"
            f" {self.in_doubt:,} in doubt, {self.in_doubt_there:,} of them are there;"
            f" atomic effects: {self.effects_missing:,} missing, {self.effects_repeated:,} repeated;"
            f" {self.ran_again:,} tasks ended twice; {self.unfinished:,} jobs left"
        )


def longest_gap(moments: Iterable[float], since: float, until: float) -> float:
    """Return the longest time in the span in which nothing happened."""
    inside = sorted(moment for moment in moments if since < moment < until)
    return max(second - first for first, second in pairwise([since, *inside, until]))
