"""Failures by group: which errors, where in the code, how often, since when, in which tasks and versions.

The figures come from the tables of groups and counts, which maintenance fills every few seconds, and never
from the jobs. An attempt that failed is counted even if its job succeeded later.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.db.models.functions import Now

from ..models import FailureGroup
from ..postgres import sql_of
from ..postgres.timeout import rows_within
from ..redaction import beginning, redact_text
from .spans import DAY, HOUR, MONTH, SPAN_TIMEOUT, WEEK, TimeSpan

#: The distance of the points of a chart, and the counts that it adds up.
_STEPS = {
    HOUR.name: (timedelta(minutes=15), "quarter"),
    DAY.name: (timedelta(hours=1), "hour"),
    WEEK.name: (timedelta(hours=6), "hour"),
    MONTH.name: (timedelta(days=1), "day"),
}
_STORED = 500  # characters of a message (_pgqueue_note_failures)
_GROUPS, _POINTS, _PARTS = (
    sql_of(__file__, name) for name in ("failures", "failure_points", "failure_parts")
)


@dataclass(slots=True)
class Point:
    """The attempts of a group that failed in one step of a chart."""

    start: datetime
    failed: int  # attempts after which the job failed
    retried: int  # attempts after which the job was tried again, or was cancelled

    @property
    def attempts(self) -> int:
        """All attempts that failed."""
        return self.failed + self.retried


class Part(NamedTuple):
    """The attempts of a group that failed in one task, queue, or version."""

    name: str
    failed: int
    retried: int


@dataclass(slots=True)
class GroupFigures:
    """Failures with the same fingerprint. Counts are of the span, except for the totals."""

    fingerprint: str
    error_class: str  # the path of the class of the exception; empty if the failure was reported without one
    message: str  # that of the newest failure, cut to 500 characters
    first_seen: datetime
    last_seen: datetime
    failed: int
    retried: int
    total_failed: int  # since the group was first seen
    total_retried: int
    tasks: Sequence[str]
    versions: Sequence[str]  # the setting VERSION of the workers, the newest first
    sample_job: int  # the id of the newest job. It may no longer be kept.
    muted_at: datetime | None
    muted_by: str
    traceback: str = ""
    points: list[Point] = field(default_factory=list)

    @property
    def attempts(self) -> int:
        """How many attempts failed in the span."""
        return self.failed + self.retried

    @property
    def name(self) -> str:
        """The class of the exception without its module."""
        return self.error_class.rpartition(".")[2]


def groups(
    alias: str,
    span: TimeSpan,
    *,
    fingerprint: str = "",
    queue: str = "",
    task: str = "",
    muted: bool = False,
    most: int = 20,
) -> list[GroupFigures]:
    """Return the groups with the most failures of the span, each with the points of a chart. The last point
    has not ended yet.

    ``fingerprint``: only this group, also if it has none in the span, and with the traceback. ``muted``:
    muted ones, instead of the others. Raises ``TimeLimitReached``.
    """
    which = {"fingerprint": fingerprint, "queue": queue, "task": task, "muted": muted, "most": most}
    rows = rows_within(alias, SPAN_TIMEOUT, _GROUPS, {**which, **_counts(span)})
    found = {row[0]: GroupFigures(*row) for row in rows}
    for each in found.values():  # the texts of the newest failure are redacted as on the page of its job
        path = each.tasks[0] if each.tasks else ""
        each.message = beginning(each.message, _STORED, path)
        each.traceback = redact_text(each.traceback, path)
    step, source = _STEPS.get(span.name) or (span.step, span.chart.value)
    back = span.length - step if span.name in _STEPS else span.back
    steps = {"fingerprints": list(found), "step": step, "back": back, "source": source, "end": span.end}
    for name, *point in rows_within(alias, SPAN_TIMEOUT, _POINTS, steps) if found else ():
        found[name].points.append(Point(*point))
    return list(found.values())


def group(alias: str, fingerprint: str, span: TimeSpan = DAY) -> GroupFigures | None:
    """Return a group with the traceback of its newest failure; None if there is none."""
    found = groups(alias, span, fingerprint=fingerprint, most=1) if fingerprint else []
    return found[0] if found else None


def parts(alias: str, fingerprint: str, span: TimeSpan, most: int = 20) -> dict[str, list[Part]]:
    """Return the failures by "task", "queue" and "version", most first. Raises ``TimeLimitReached``."""
    found: dict[str, list[Part]] = {"task": [], "queue": [], "version": []}
    which = {"fingerprint": fingerprint, "most": most, **_counts(span)}
    for kind, *part in rows_within(alias, SPAN_TIMEOUT, _PARTS, which):
        found[kind].append(Part(*part))
    return found


def _counts(span: TimeSpan) -> dict[str, Any]:
    return {"source": span.table.value, "grain": span.grain, "back": span.length, "end": span.end}


def mute(alias: str, fingerprint: str, author: str | None) -> bool:
    """Mute a group until it changes (``_pgqueue_fold_failures``), or unmute it without an author. Return
    whether it has changed by that.
    """
    mutes = author is not None
    known = FailureGroup.objects.using(alias).filter(pk=fingerprint, muted_at__isnull=mutes)
    return bool(known.update(muted_at=Now() if mutes else None, muted_by=(author or "")[:150]))
