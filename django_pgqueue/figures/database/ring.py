"""The ring of history: whether it turns, so that old jobs are removed."""

from __future__ import annotations

from dataclasses import dataclass

from django.utils.translation import gettext as _

from .part import Part, State, rows_of, words

__all__ = ["Ring", "read"]

SHORTEST = 3600.0  # seconds; with a very short retention, upkeep has this long


@dataclass(frozen=True, slots=True)
class Ring:
    """The position of the ring."""

    current: int
    """The shelf to which jobs that end now go: 1 to 8."""
    seconds: float
    """How long they have gone there."""
    retention: float
    """How many seconds finished jobs are kept."""

    @property
    def is_late(self) -> bool:
        """Whether it should have moved long ago: it moves after a sixth of the retention."""
        return self.seconds > max(self.retention / 3, SHORTEST)


def read(alias: str) -> Part:
    """Return the position of the ring."""
    found = Ring(*rows_of(alias, "ring")[0])
    finding = _("Jobs have ended on shelf %(shelf)d of 8 for %(time)s; they are kept for %(retention)s.") % {
        "shelf": found.current,
        "time": words(found.seconds),
        "retention": words(found.retention),
    }
    rule = _(
        "Act when the ring has not moved for more than a third of the retention: no worker does the upkeep,"
        " or a long transaction reads the oldest shelf, which can then not be emptied."
    )
    state = State.ACT if found.is_late else State.FINE
    return Part("ring", state, finding, rule, [found])
