"""Who fills a queue: what its waiting jobs have in common.

Up to ``MOST`` waiting jobs are all looked at; of more, those in some pages of the table, drawn at random, so
this takes as long with a million waiting jobs as with ten thousand, and a share is off by few percent.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..postgres.timeout import rows_within
from ..redaction import redact_call
from .depth import Depth

MOST = 5_000  # jobs
PAGES = 200  # of the table, for a sample
LEAST = 0.05  # the share of the waiting jobs from which on something is shown
PATIENCE = 1.0  # seconds
_FIRST, _SAMPLE = (
    "".join(
        Path(__file__).with_name(f"backlog_{name}.sql").read_text(encoding="utf-8")
        for name in (begin, "shares")
    )
    for begin in ("first", "sample")
)


@dataclass(frozen=True, slots=True)
class Share:
    """How many of the waiting jobs that were looked at have something in common."""

    kind: str  # "task", "group", "limit" (key) or "argument"
    task_path: str  # of an argument
    place: str  # of an argument, as a search names it, such as "kwargs.tenant"
    value: str
    jobs: int
    share: float  # from 0 to 1

    @property
    def is_shown(self) -> bool:
        """Whether the redaction leaves the value of an argument as it is."""
        if self.kind != "argument":
            return True
        where, _point, name = self.place.partition(".")
        if where == "kwargs":
            return bool(redact_call([], {name: self.value}, self.task_path)[1][name] == self.value)
        args = [None] * int(name) + [self.value]
        return bool(redact_call(args, {}, self.task_path)[0][-1] == self.value)


@dataclass(frozen=True, slots=True)
class Backlog:
    """What fills a queue."""

    shares: list[Share]
    jobs: int  # how many were looked at
    is_sample: bool  # whether there are more


def backlog(alias: str, depth: Depth, *, arguments: bool) -> Backlog:
    """Return what the waiting jobs of a queue have in common, the largest shares first.

    ``arguments``: whether the user may see them. Raises ``TimeLimitReached``.
    """
    waiting = depth.ready + (depth.scheduled or 0) + depth.retrying + depth.blocked
    is_sample = waiting > MOST or depth.scheduled is None
    parameters = {"queue": depth.queue_name, "most": MOST, "pages": PAGES, "least": LEAST}
    rows = rows_within(alias, PATIENCE, _SAMPLE if is_sample else _FIRST, parameters)
    looked_at = rows[0][-1]
    if is_sample and looked_at < MOST // 100:  # a small part of the table
        rows = rows_within(alias, PATIENCE, _FIRST, parameters)
        looked_at = rows[0][-1]
    found = (
        Share(kind, task, place, value, jobs, jobs / looked_at)
        for kind, task, place, value, jobs, _all in rows
        if kind
    )
    shown = [each for each in found if each.is_shown and (arguments or each.kind != "argument")]
    return Backlog(shown, looked_at, is_sample)
