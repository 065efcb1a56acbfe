"""The phases of a run, in their order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

PRESSURE = 1.5  # times the rate
KILL_PERIOD = 9.0  # seconds from one kill to the next. A shorter phase has one kill


class Trouble(Enum):
    """What happens during a phase."""

    NOTHING = "nothing"
    IDLE_IN_TRANSACTION = "a transaction with an id of its own stays open"
    READERS = "four transactions count the rows of the queue's hot table again and again"
    PRESSURE = "the producer adds half as many jobs again"
    KILLS = "the adapter and its workers are killed with SIGKILL and started again"


@dataclass(frozen=True)
class Phase:
    """A stretch of time under the same conditions."""

    name: str
    seconds: float
    trouble: Trouble = Trouble.NOTHING
    is_counted: bool = True  # it has a line in the table


@dataclass(frozen=True)
class Part:
    """Phases that run one after the other, with the same processes and in the same database."""

    name: str
    is_depth_target: bool
    phases: Sequence[Phase]


def parts(seconds: float, chosen: Sequence[str] = ()) -> list[Part]:
    """Return all parts, or only those whose names were chosen."""
    warm_up = Phase("warm-up", seconds / 2, is_counted=False)
    everything = [
        Part("peak", True, [warm_up, Phase("peak", seconds)]),
        Part(
            "phases",
            False,
            [
                warm_up,
                Phase("clean", seconds),
                Phase("idle in transaction", seconds, Trouble.IDLE_IN_TRANSACTION),
                Phase("recovery", seconds),
                Phase("active readers", seconds, Trouble.READERS),
                Phase("pressure", seconds, Trouble.PRESSURE),
                Phase("recovery 2", seconds),
                Phase("repeated kill", 1.5 * seconds, Trouble.KILLS),
                Phase("recovery 3", seconds),
            ],
        ),
    ]
    return [part for part in everything if not chosen or part.name in chosen]


PART_NAMES = ("peak", "phases")
