"""The overview: a verdict with its reasons, tiles, charts, queues, failures and workers.

The page is read again in two parts, ``?part=now`` and ``?part=charts``, by the script ``live.js``. A part is
the same template without its frame, so blocks that a project replaces are refreshed, too.

Each statement has a time limit. What was too slow is not shown, and the page says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.forms import Media
from django.template.response import TemplateResponse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ...figures.health import PATIENCE
from ...figures.spans import DAY, HOUR, breakdown
from ...figures.verdict import judge, read
from ...models import Queue
from ...time_limit import within
from ...wording import age
from ..charts import chart
from ..charts.span_tabs import chosen_span, span_tabs
from ..console import console_page
from ..failures.block import failure_block
from ..paused import in_words
from .charts import charts
from .cures import troubles
from .limits import add_limits
from .pauses import may_pause, may_resume, press
from .rows import queue_rows, worker_rows
from .tiles import tiles

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse

    from ...figures.spans import Figures, Span
    from ..base import DatabaseAdmin

__all__ = ["overview"]

MOST_QUEUES = 200
MOST_WORKERS = 100
_TEMPLATE = "admin/django_pgqueue/overview.html"
_TITLE = gettext_lazy("Overview of the queues")
_MEDIA = chart.MEDIA + Media(css={"all": ["django_pgqueue/overview.css"]})


def overview(admin: DatabaseAdmin[Any], request: HttpRequest) -> HttpResponse:
    """Return the page, or a part of it, for a user who may view jobs. ``admin`` is the admin of jobs, with
    its site and database.
    """
    if request.method == "POST":
        return press(admin, request)
    part = request.GET.get("part", "")
    context: dict[str, Any] = {"shows_now": part != "charts", "shows_charts": part != "now"}
    if context["shows_now"]:
        context |= _now(admin, request)
    if context["shows_charts"]:
        context |= _charts(admin, request)
    if part in {"now", "charts"}:
        request.current_app = admin.admin_site.name
        frame = {"pgqueue_frame": "admin/django_pgqueue/part.html", "opts": admin.opts}
        return TemplateResponse(request, _TEMPLATE, {**frame, **context})
    return console_page(admin, request, _TEMPLATE, str(_TITLE), media=_MEDIA, **context)


def _now(admin: DatabaseAdmin[Any], request: HttpRequest) -> dict[str, Any]:
    """Return what changes by the second."""
    site, alias = admin.admin_site, admin.database
    state = read(alias)
    pauses = in_words(site, request, state.pauses or [])
    verdict, resumes = judge(state), may_resume(site, request)
    hour, day = (_by_queue(alias, span) for span in (HOUR, DAY))
    names = within(alias, PATIENCE, lambda: list(Queue.objects.using(alias).values_list("pk", flat=True)))
    rows = queue_rows(site, request, state, names or [], hour or {}, day or {}, pauses)
    shown = rows[:MOST_QUEUES]
    every_limit, has_limits = add_limits(site, request, state, shown)
    workers = state.crew.workers if state.crew else []
    return {
        "verdict": verdict,
        "troubles": troubles(site, request, verdict.problems, pauses, may_resume=resumes),
        "notes": pauses.tasks_said,
        "tiles": tiles(site, request, state),
        "queues": shown,
        "every_limit": every_limit,
        "more_queues": max(0, len(rows) - MOST_QUEUES),
        "may_pause": may_pause(site, request),
        "may_resume": resumes,
        "any_lost": bool(state.lost),
        "failures": failure_block(admin),
        "workers": worker_rows(site, request, workers[:MOST_WORKERS]),
        "more_workers": max(0, len(workers) - MOST_WORKERS),
        "slow_queues": None in (state.depths, state.lost, hour, day, names) or not has_limits,
        "slow_workers": state.crew is None,
        "slow_text": slow_text(PATIENCE),
    }


def _charts(admin: DatabaseAdmin[Any], request: HttpRequest) -> dict[str, Any]:
    """Return what changes by the minute."""
    span, alias = chosen_span(request), admin.database
    drawn = within(alias, PATIENCE, lambda: charts(alias, span))
    return {
        "charts": drawn or [],
        "span": span.name,
        "span_tabs": span_tabs(request),
        "slow_charts": drawn is None,
        "slow_text": slow_text(PATIENCE),
    }


def _by_queue(alias: str, span: Span) -> dict[str, Figures] | None:
    """Return what ran in each queue; None if it took too long."""
    rows = within(alias, PATIENCE, lambda: breakdown(alias, span, "queue", most=MOST_QUEUES))
    return None if rows is None else {row.queue_name: row for row in rows}


def slow_text(limit: float) -> str:
    """Return what is shown instead of figures that took too long."""
    text = _("The database did not answer within %(limit)s, so some figures are missing here.")
    return text % {"limit": age(limit)}
