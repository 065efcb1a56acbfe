"""How long the attempts of a task ran lately, as a small chart on the page of each of its jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.utils.translation import gettext as _

from ...figures.spans import DAY, series
from ...models import JobStat
from ...time_limit import TimeLimitReached
from .. import display
from ..charts.chart import Chart, Series
from ..links import page_url

if TYPE_CHECKING:
    from django.contrib.admin import AdminSite
    from django.http import HttpRequest

    from ...models import Job

__all__ = ["task_runs"]

_SHARES = (("p50", 0.5, "main", "solid"), ("p95", 0.95, "second", "dashed"))


def task_runs(site: AdminSite, request: HttpRequest, job: Job) -> Chart | None:
    """Return the chart of the last 24 hours. None: this user may not view statistics, the task has not run,
    or reading them takes too long.
    """
    if not page_url(site, request, JobStat, "changelist"):
        return None
    try:
        points = series(str(job._state.db), DAY, task=job.task_path)
    except TimeLimitReached:
        return None
    lines = []
    for label, share, color, stroke in _SHARES:
        values = [point.ran(share) for point in points]
        texts = ["" if value is None else display.span(value) for value in values]
        lines.append(Series(label, values, texts, color=color, stroke=stroke))  # type: ignore[arg-type]
    title = _("How long this task ran in the last 24 hours")
    chart = Chart("pgqueue-runs", title, [point.start for point in points], lines, unit="seconds")
    return None if chart.is_empty else chart
