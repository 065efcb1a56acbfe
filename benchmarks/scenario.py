"""A scenario: variants that are measured in turn, several rounds, and compared within each round.

The machine is never quiet. So the variants take turns (A B A B), each is compared with the baseline of the
same round, and the median of these ratios counts.
"""

from __future__ import annotations

import statistics
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from .contender import Contender

__all__ = ["Bench", "Result", "Scenario", "Target", "Variant"]

Figures = dict[str, float]
"""What one run measured: a name with its unit, such as ``jobs/s`` or ``p50 ms``, and the value."""


@dataclass
class Bench:
    """What a scenario gets: the contestants that can run here, and how much to do."""

    contenders: Mapping[str, Contender]
    seconds: float
    """About how long one run takes."""
    full: bool = False
    server: str = ""
    """The address of the server, for a scenario that opens a contestant with one more database."""
    opened: ExitStack = field(default_factory=ExitStack)
    """Is closed at the end."""

    def among(self, *names: str) -> list[Contender]:
        """Return those of these contestants that take part."""
        return [self.contenders[name] for name in names if name in self.contenders]


@dataclass(frozen=True)
class Variant:
    """One of the things that a scenario compares."""

    name: str
    run: Callable[[], Figures]


@dataclass(frozen=True)
class Target:
    """What we want to reach: our figure divided by the one of ``against`` (without it: our figure itself)."""

    figure: str
    bound: float
    variant: str
    against: str = ""
    at_most: bool = False


@dataclass(frozen=True)
class Scenario:
    """What is measured, and how it is shown."""

    name: str
    title: str
    about: str
    figure: str
    """The figure that ratios are about."""
    variants: Callable[[Bench], Sequence[Variant]]
    baseline: str
    rounds: int = 3
    lower_is_better: bool = False
    only_full: bool = False
    contestants: tuple[str, ...] = ()
    """Those that it needs besides ours, such as floors; a scenario with peers has the chosen ones, too."""
    with_peers: bool = False
    targets: tuple[Target, ...] = ()


@dataclass
class Result:
    """The figures of all rounds of a scenario: variant, then figure, then one value for each round."""

    scenario: Scenario
    rounds: dict[str, list[Figures]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    def add(self, variant: str, figures: Figures) -> None:
        """Add what one run measured."""
        self.rounds.setdefault(variant, []).append(figures)

    def values(self, variant: str, figure: str) -> list[float]:
        """Return a figure of all rounds of a variant."""
        return [each[figure] for each in self.rounds.get(variant, []) if figure in each]

    def median(self, variant: str, figure: str) -> float | None:
        """Return the median of all rounds, None if the variant did not measure it."""
        values = self.values(variant, figure)
        return statistics.median(values) if values else None

    def ratio(self, variant: str, against: str, figure: str) -> float | None:
        """Return the median of the ratios in each round."""
        pairs = zip(self.rounds.get(variant, []), self.rounds.get(against, []), strict=False)
        ratios = [one[figure] / other[figure] for one, other in pairs if figure in one and other.get(figure)]
        return statistics.median(ratios) if ratios else None

    def reached(self, target: Target) -> tuple[float, bool] | None:
        """Return the figure that a target is about, and whether it is good enough. None: not measured."""
        value = (
            self.ratio(target.variant, target.against, target.figure)
            if target.against
            else self.median(target.variant, target.figure)
        )
        if value is None:
            return None
        return value, value <= target.bound if target.at_most else value >= target.bound
