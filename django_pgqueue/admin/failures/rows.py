"""What the pages of failures show of a group: texts, the sparkline, the chart, and its jobs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.db import connections
from django.utils.translation import gettext as _
from django.utils.translation import ngettext, pgettext

from ...figures.spans import PATIENCE
from ...time_limit import time_limit
from .. import display
from ..charts.chart import Chart, Series
from ..charts.sparkline import sparkline
from ..jobs.texts import breakable
from .traces import application_part

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...figures.failures import FailureGroup, Part
    from ...figures.spans import Span

__all__ = ["JobsOfGroup", "detail", "jobs_of", "parts_rows", "row"]

MOST_JOBS = 10_000
_SHOWN = 3  # tasks and versions of a group on the list

# Each count reads an index of these jobs.
_JOBS = """
    SELECT
        (SELECT count(*) FROM (SELECT FROM pgqueue_job_kept AS job
            WHERE job.error_fingerprint = %(fingerprint)s AND job.error_fingerprint <> ''
                AND job.status = 'failed'
            LIMIT %(most)s) AS failed),
        (SELECT count(*) FROM (SELECT FROM pgqueue_job_live AS job
            WHERE job.error_fingerprint = %(fingerprint)s AND job.error_fingerprint <> ''
            LIMIT %(most)s) AS live)
"""


@dataclass(frozen=True, slots=True)
class JobsOfGroup:
    """How many jobs of a group there are now, in words; empty if there are none."""

    failed: str
    live: str


def jobs_of(alias: str, fingerprint: str) -> JobsOfGroup:
    """Count the jobs of a group, up to ``MOST_JOBS``. Raises ``TimeLimitReached``."""
    with time_limit(alias, PATIENCE), connections[alias].cursor() as cursor:
        cursor.execute(_JOBS, {"fingerprint": fingerprint, "most": MOST_JOBS + 1})
        failed, live = cursor.fetchone()
    return JobsOfGroup(
        ngettext("%(number)s job has failed", "%(number)s jobs have failed", failed) % _number(failed)
        if failed
        else "",
        ngettext(
            "%(number)s job waits for another attempt or runs",
            "%(number)s jobs wait for another attempt or run",
            live,
        )
        % _number(live)
        if live
        else "",
    )


def row(group: FailureGroup, url: str, span: Span) -> dict[str, Any]:
    """Return what the list shows of a group."""
    return {
        "url": url,
        "kind": breakable(group.error_class) or _("without an error"),
        "message": group.message,
        "failed": display.number(group.failed),
        "retried": display.number(group.retried),
        "attempts": group.attempts,
        "spark": sparkline([point.attempts for point in group.points], "alarm"),
        "tasks": _few(group.tasks),
        "versions": _few(group.versions),
        "first_seen": display.time(group.first_seen),
        "last_seen": display.time(group.last_seen),
        "muted": _muted(group),
    }


def detail(group: FailureGroup, span: Span) -> dict[str, Any]:
    """Return what the page of a group shows."""
    short = application_part(group.traceback)
    return {
        "group": group,
        "message": group.message,
        "kind": breakable(group.error_class),
        "first_seen": display.time(group.first_seen),
        "last_seen": display.time(group.last_seen),
        "total_failed": display.number(group.total_failed),
        "total_retried": display.number(group.total_retried),
        "muted": _muted(group),
        "chart": _chart(group),
        "trace": short or group.traceback,
        "full_trace": group.traceback if short else "",
    }


def parts_rows(found: Sequence[Part]) -> list[tuple[Any, str, str]]:
    """Return the name and the counts of each part. Those without a name have none to tell."""
    return [
        (breakable(part.name), display.number(part.failed), display.number(part.retried))
        for part in found
        if part.name
    ]


def _chart(group: FailureGroup) -> Chart:
    def of(label: str, counts: list[int], color: Any) -> Series:
        return Series(label, counts, [display.number(count) for count in counts], color)

    points = group.points
    series = [
        of(pgettext("number of jobs", "failed"), [point.failed for point in points], "alarm"),
        of(pgettext("number of jobs", "retried"), [point.retried for point in points], "quiet"),
    ]
    starts = [point.start for point in points]
    return Chart("pgqueue-failures", _("Failed attempts"), starts, series, kind="bars")


def _few(names: Sequence[str]) -> dict[str, Any]:
    left = len(names) - _SHOWN
    more = ngettext("and %(count)d more", "and %(count)d more", left) % {"count": left} if left > 0 else ""
    return {"names": [breakable(name) for name in names[:_SHOWN]], "more": more}


def _muted(group: FailureGroup) -> str:
    if group.muted_at is None:
        return ""
    text = _("muted by %(author)s at %(time)s") if group.muted_by else _("muted at %(time)s")
    return display.filled(text, time=display.time(group.muted_at), author=group.muted_by)


def _number(count: int) -> dict[str, str]:
    return {"number": display.number(MOST_JOBS) + "+" if count > MOST_JOBS else display.number(count)}
