"""The overview: a verdict with its reasons, tiles, charts, queues, failures and workers.

The page is read again in two parts, ``?part=now`` and ``?part=charts``, by the script ``live.js``. A part is
the same template without its frame, so blocks that a project replaces are refreshed, too.

Each statement has a time limit. What was too slow is not shown, and the page says so.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from django.contrib import messages
from django.contrib.admin.models import ADDITION, DELETION, LogEntry
from django.core.exceptions import PermissionDenied
from django.forms import Media
from django.http import HttpResponseBadRequest, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import NoReverseMatch, reverse
from django.utils.formats import number_format
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, pgettext

from ...formatting import age
from ...jobs.pause import pause, resume
from ...models import Job, JobStat, Pause, Queue, Worker
from ...models.stat import HISTOGRAM_BOUNDS
from ...monitoring.health import PATIENCE, judge, read
from ...monitoring.spans import DAY, HOUR, SHARES, breakdown, series
from ...postgres.timeout import within
from ..charts import MEDIA, Chart, Series, chosen_span, percentile, percentile_text, span_tabs
from ..console import console_page
from ..display import page_url
from ..failures import failure_block
from ..paused import in_words
from ..visible import may_view_failures
from .rows import add_limits, queue_rows, worker_rows
from .tiles import tiles

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Literal

    from django.contrib.admin import AdminSite
    from django.http import HttpRequest, HttpResponse

    from ...monitoring.health import Problem
    from ...monitoring.spans import Figures, Span
    from ..base import DatabaseAdmin
    from ..paused import Paused

MOST_QUEUES = 200
MOST_WORKERS = 100
_TEMPLATE = "admin/django_pgqueue/overview.html"
_TITLE = gettext_lazy("Overview of the queues")
_MEDIA = MEDIA + Media(css={"all": ["django_pgqueue/overview.css"]})


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
        "failures": failure_block(admin) if may_view_failures(site, request) else None,
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


# ----------------------------------------------------------------------------
# The two charts of the overview: what ran and failed, and how long jobs waited and ran.

_SOON = 30  # seconds; workers write their figures every ten seconds
_STROKES: tuple[Literal["solid", "dashed", "dotted"], ...] = ("solid", "dashed", "dotted")


def charts(alias: str, span: Span) -> list[Chart]:
    """Return the charts of a span. Raises ``TimeLimitReached``."""
    points = [point for point in series(alias, span) if point.seconds >= _SOON]
    return [throughput(points), times(points)]


def throughput(points: Sequence[Figures]) -> Chart:
    """Return how many attempts have ended a minute. The last point is not over."""

    def of(label: str, counts: list[int], color: Literal["main", "alarm", "quiet"]) -> Series:
        rates = [60 * count / point.seconds for count, point in zip(counts, points, strict=True)]
        return Series(label, rates, [_rate(rate) for rate in rates], color)

    failed = of(pgettext("number of jobs", "failed"), [point.failed for point in points], "alarm")
    retried = of(pgettext("number of jobs", "retried"), [point.retried for point in points], "quiet")
    done = of(pgettext("number of jobs", "done"), [point.done for point in points], "main")
    starts = [point.start for point in points]
    return Chart("pgqueue-throughput", _("Attempts a minute"), starts, [failed, retried, done], kind="bars")


def times(points: Sequence[Figures]) -> Chart:
    """Return percentiles of how long jobs waited and ran."""
    found = []
    for label, color, histograms in (
        (_("waited"), "second", [point.wait_histogram for point in points]),
        (_("ran"), "main", [point.run_histogram for point in points]),
    ):
        for share, stroke in zip(SHARES, _STROKES, strict=True):
            found.append(
                Series(
                    f"{label} p{share * 100:.0f}",
                    [_seconds(percentile(histogram, share)) for histogram in histograms],
                    [percentile_text(histogram, share) for histogram in histograms],
                    color,  # type: ignore[arg-type]
                    stroke,
                )
            )
    starts = [point.start for point in points]
    return Chart("pgqueue-times", _("How long jobs waited and ran"), starts, found, unit="seconds")


def _seconds(found: float | None) -> float | None:
    return HISTOGRAM_BOUNDS[-1] if found is not None and math.isinf(found) else found


def _rate(rate: float) -> str:
    digits = 1 if rate < 10 and not float(rate).is_integer() else 0
    return number_format(round(rate, digits), digits, use_l10n=True, force_grouping=True)


# ----------------------------------------------------------------------------
# The problems of the verdict, each with the way to its fix: a page, a command, or a button.

_START = "manage.py runqueueworker"


@dataclass(frozen=True, slots=True)
class Trouble:
    """One problem, for the template."""

    text: str
    label: str = ""
    """What the link says; empty if this user may not see the page."""
    url: str = ""
    command: str = ""
    resumes: str = ""
    """The queue that a button resumes."""


def troubles(
    site: AdminSite, request: HttpRequest, problems: Iterable[Problem], pauses: Paused, *, may_resume: bool
) -> list[Trouble]:
    """Return the problems with their fixes. ``pauses`` tell who has paused a queue, and why."""
    return [_trouble(site, request, problem, pauses, may_resume) for problem in problems]


def _trouble(
    site: AdminSite, request: HttpRequest, problem: Problem, pauses: Paused, may_resume: bool
) -> Trouble:
    text = str(problem)
    if problem.kind == "paused":
        # To resume everything, the page of pauses asks first.
        said = pauses.queues_said.get(problem.queue_name) if problem.queue_name else pauses.everything
        url = "" if problem.queue_name else page_url(site, request, Pause, "changelist")
        label = _("Pauses") if url else ""
        return Trouble(said or text, label, url, resumes=problem.queue_name if may_resume else "")
    if problem.kind in {"no_worker", "few_workers", "silent", "lost", "lost_jobs"}:
        command = _START if problem.kind in {"no_worker", "few_workers"} else ""
        url = page_url(site, request, Worker, "changelist")
        return Trouble(text, _("Workers") if url else "", url, command)
    if problem.kind == "failures":
        by_group = _view(site, request, Job, "job_failures") if may_view_failures(site, request) else ""
        url = by_group or _list(site, request, status="failed", finished="hour")
        return Trouble(text, _("Failures") if url else "", url)
    if problem.kind in {"unreachable", "foreign_lock"}:
        url = _view(site, request, JobStat, "jobstat_database")
        return Trouble(text, _("Database") if url else "", url)
    url = page_url(site, request, Queue, "change", problem.queue_name) or _list(
        site, request, queue=problem.queue_name
    )
    label = _("Queue %(name)s") % {"name": problem.queue_name}
    return Trouble(text, label if url else "", url, _START if problem.kind == "unserved" else "")


def _list(site: AdminSite, request: HttpRequest, **filters: str) -> str:
    url = page_url(site, request, Job, "changelist")
    return f"{url}?{urlencode(filters)}" if url else ""


def _view(site: AdminSite, request: HttpRequest, model: type[Job | JobStat], name: str) -> str:
    if not page_url(site, request, model, "changelist"):
        return ""
    try:
        return reverse(f"admin:django_pgqueue_{name}", current_app=site.name)
    except NoReverseMatch:
        return ""


# ----------------------------------------------------------------------------
# The buttons of the overview that pause and resume a queue. Each needs the permission of the page of pauses:
# add a pause to pause, delete one to resume.

_MOST_OF_REASON = 400


def may_pause(site: AdminSite, request: HttpRequest) -> bool:
    """Return whether this user may pause a queue, and whether the site has pauses at all."""
    return site.is_registered(Pause) and site.get_model_admin(Pause).has_add_permission(request)


def may_resume(site: AdminSite, request: HttpRequest) -> bool:
    """Return whether this user may resume a queue, which deletes its pause."""
    if not site.is_registered(Pause):
        return False
    admin: Any = site.get_model_admin(Pause)
    allowed = getattr(admin, "has_resume_permission", admin.has_delete_permission)
    return bool(allowed(request))


def press(admin: DatabaseAdmin[Any], request: HttpRequest) -> HttpResponse:
    """Do what the button says, and show the overview again."""
    queue, button = request.POST.get("queue", ""), request.POST.get("button", "")
    allowed = {"pause": may_pause, "resume": may_resume}.get(button)
    if allowed is None or not queue or "\0" in queue:
        return HttpResponseBadRequest()
    if not allowed(admin.admin_site, request):
        raise PermissionDenied
    try:
        text, level = (_pause if button == "pause" else _resume)(admin, request, queue)
    except ValueError:  # a user has changed the form
        return HttpResponseBadRequest()
    admin.message_user(request, text, level)
    return HttpResponseRedirect(request.get_full_path())


def _pause(admin: DatabaseAdmin[Any], request: HttpRequest, queue: str) -> tuple[str, int]:
    made = pause(
        queue=queue,
        reason=request.POST.get("reason", "").replace("\0", "")[:_MOST_OF_REASON],
        author=request.user.get_username()[:150],
        using=admin.writes_to,
    )
    _note(request, made, ADDITION, _("Paused."))
    return _("Queue %(name)s is paused.") % {"name": queue}, messages.SUCCESS


def _resume(admin: DatabaseAdmin[Any], request: HttpRequest, queue: str) -> tuple[str, int]:
    found = Pause.objects.using(admin.writes_to).filter(kind=Pause.Kind.QUEUE, name=queue).first()
    if not resume(queue=queue, using=admin.writes_to):
        return _("It was not paused any more."), messages.WARNING
    if found is not None:
        _note(request, found, DELETION, _("Resumed."))
    return _("Queue %(name)s is resumed.") % {"name": queue}, messages.SUCCESS


def _note(request: HttpRequest, row: Pause, flag: int, text: str) -> None:
    LogEntry.objects.log_actions(request.user.pk, [row], flag, change_message=text)  # type: ignore[arg-type]
