"""The overview: is the queue well? The health with its problems, tiles, charts, queues, failures and workers.

The page is read again in two parts, ``?part=now`` and ``?part=charts``, by the script ``live.js``. A part is
the same template without its frame, so blocks that a project replaces are refreshed, too.

Each statement has a time limit. What was too slow is not shown, and the page says so.
"""

from __future__ import annotations

from functools import partial
from typing import Any
from urllib.parse import urlencode

from django.contrib.admin import AdminSite
from django.contrib.admin.models import ADDITION, DELETION
from django.core.exceptions import PermissionDenied
from django.forms import Media
from django.http import HttpRequest, HttpResponse, HttpResponseBadRequest, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.utils.translation import gettext as _
from django.utils.translation import pgettext

from ..formatting import age, number, throughput
from ..jobs.limits import pause, resume
from ..models import Job, JobStat, Limit, Pause, Queue, Schedule, Worker
from ..monitoring.depth import MOST, Depth, capped, depth_series
from ..monitoring.health import PATIENCE, HealthProblem, QueueState, judge, read, thresholds_of
from ..monitoring.queues import FailedJobs, failed_jobs
from ..monitoring.spans import HOUR, SHARES, Figures, TimeSpan, breakdown, rates, series
from ..postgres.timeout import within
from ..tasks.registry import queues_in_use
from .base import DatabaseAdmin
from .charts import (
    MEDIA,
    Chart,
    Color,
    chosen_span,
    depth_charts,
    gauge,
    numbers,
    percentiles,
    span_tabs,
    sparkline,
    with_deploys,
)
from .console import Paused, console_page, page_url, paused
from .display import linked
from .failures import failure_block
from .history import note_and_tell
from .task_page import limit_words
from .workers import worker_row

MOST_QUEUES = 200
MOST_WORKERS = 100
_TEMPLATE = "admin/django_pgqueue/overview.html"
_MEDIA = MEDIA + Media(css={"all": ["django_pgqueue/overview.css"]})


def overview(admin: DatabaseAdmin[Any], request: HttpRequest) -> HttpResponse:
    """Return the page, or a part of it, for a user who may view jobs. ``admin`` is the admin of jobs, with
    its site and database.
    """
    if request.method == "POST":
        return press(admin, request)
    part = request.GET.get("part", "")
    context: dict[str, Any] = {"shows_now": part != "charts", "shows_charts": part != "now"}
    context["slow_text"] = _(
        "The database did not answer within %(limit)s, so some figures are missing here."
    ) % {"limit": age(PATIENCE)}
    if context["shows_now"]:
        context |= _now(admin, request)
    if context["shows_charts"]:
        span = chosen_span(request)
        drawn = within(admin.database, PATIENCE, lambda: charts(admin.database, span))
        context |= {"charts": drawn or [], "slow_charts": drawn is None}
        context |= {"span": span.name, "span_tabs": span_tabs(request)}
    if part in {"now", "charts"}:
        request.current_app = admin.admin_site.name
        frame = {"pgqueue_frame": "admin/django_pgqueue/part.html", "opts": admin.opts}
        return TemplateResponse(request, _TEMPLATE, {**frame, **context})
    return console_page(admin, request, _TEMPLATE, _("Overview of the queues"), media=_MEDIA, **context)


def _now(admin: DatabaseAdmin[Any], request: HttpRequest) -> dict[str, Any]:
    """Return what changes by the second."""
    site, alias = admin.admin_site, admin.database
    url = partial(page_url, site, request)
    state = read(alias)
    pauses = paused(site, request, alias, state.pauses or [])
    health, resumes = judge(state), may_resume(site, request)

    def last_hour() -> dict[str, Figures]:
        return {row.queue_name: row for row in breakdown(alias, HOUR, "queue", most=MOST_QUEUES)}

    hour, rate = within(alias, PATIENCE, last_hour), within(alias, PATIENCE, lambda: rates(alias))
    failed = within(alias, PATIENCE, lambda: failed_jobs(alias))
    names = within(alias, PATIENCE, lambda: queues_in_use(alias))
    every = sorted({*(state.depths or {}), *(names or [])})
    shown = every[:MOST_QUEUES]
    keys = ["*", *(f"queue:{name}" for name in shown)]
    limits = within(alias, PATIENCE, lambda: Limit.objects.using(alias).in_bulk(keys))
    running = {f"queue:{name}": depth.running for name, depth in (state.depths or {}).items()}
    running["*"] = sum(running.values())
    limited = {
        key: linked(url(Limit, "change", key), limit_words(limit, running.get(key, 0)))
        for key, limit in (limits or {}).items()
    }
    workers = state.crew.workers if state.crew else []
    return {
        "health": health,
        "troubles": [_trouble(url, problem, pauses, resumes) for problem in health.problems],
        "notes": pauses.tasks_said,
        "tiles": _tiles(url, state, failed),
        "any_lost": bool(state.lost),
        "jobs_url": url(Job, "changelist"),
        "queues": [
            _queue_row(state, name)
            | {
                "url": url(Queue, "change", name) or _jobs(url, queue=name),
                "hour": (hour or {}).get(name),
                "rate": (rate or {}).get(name, 0.0),
                "failed": (failed or {}).get(name, FailedJobs()).day,
                "paused": pauses.queues.get(name, ""),
                "limit": limited.get(f"queue:{name}"),
            }
            for name in shown
        ],
        "every_limit": limited.get("*"),
        "more_queues": max(0, len(every) - MOST_QUEUES),
        "may_pause": bool(url(Pause, "add")),
        "pauses_all": "" if pauses.everything or not url(Pause, "add") else EVERYTHING,
        "may_resume": resumes,
        "failures": failure_block(admin) if url(Job, "failures") else None,
        "workers": [
            worker_row(worker, url(Worker, "change", worker.pk)) for worker in workers[:MOST_WORKERS]
        ],
        "more_workers": max(0, len(workers) - MOST_WORKERS),
        "slow_queues": None in (state.depths, state.lost, hour, rate, failed, names, limits),
        "slow_workers": state.crew is None,
    }


def _jobs(url: partial[str], **filters: str) -> str:
    """Return the URL of a list of jobs; empty for a user who may not view it."""
    return f"{found}?{urlencode(filters)}" if (found := url(Job, "changelist")) else ""


_SOON = 30  # seconds; workers write their figures every ten seconds


def charts(alias: str, span: TimeSpan) -> list[Chart]:
    """Return the charts of a span. The last point is not over. Raises ``TimeLimitReached``."""
    points = [point for point in series(alias, span) if point.seconds >= _SOON]
    starts = [point.start for point in points]
    kinds: list[tuple[str, str, Color]] = [
        (pgettext("number of jobs", "failed"), "failed", "alarm"),
        (pgettext("number of jobs", "retried"), "retried", "quiet"),
        (pgettext("number of jobs", "done"), "done", "main"),
    ]
    attempts = [
        numbers(label, [60 * getattr(point, name) / point.seconds for point in points], color)
        for label, name, color in kinds
    ]
    times = [
        *percentiles(points, "wait", SHARES, _("waited"), ("second", "third", "fourth")),
        *percentiles(points, "run", SHARES, _("ran"), ("main", "fifth", "sixth")),
    ]
    counted = depth_series(alias, span)
    ran = [
        Chart("pgqueue-throughput", _("Attempts a minute"), starts, attempts, kind="bars"),
        Chart("pgqueue-times", _("How long jobs waited and ran"), starts, times, unit="seconds"),
    ]
    return with_deploys(counted, [*ran, *depth_charts(counted, points)])


def _trouble(url: partial[str], problem: HealthProblem, pauses: Paused, resumes: bool) -> dict[str, str]:
    """Return a problem with the way to its fix. ``pauses`` say who has paused a queue, and why."""
    kind, name, text = problem.kind, problem.queue_name, str(problem)
    found = {}
    if kind == "paused":
        text = (pauses.queues_said.get(name) if name else pauses.everything) or text
        target, label = "" if name else url(Pause, "changelist"), _("Pauses")
        found["resumes"] = (name or EVERYTHING) if resumes else ""
    elif kind in {"no_worker", "few_workers", "silent", "lost", "lost_jobs"}:
        target, label = url(Worker, "changelist"), _("Workers")
    elif kind == "failures":
        target, label = url(Job, "failures") or _jobs(url, status="failed", finished="hour"), _("Failures")
    elif kind == "skips":
        target, label = (
            url(Schedule, "change", problem.subject),
            _("Schedule %(name)s") % {"name": problem.subject},
        )
    elif kind == "slow_job":
        target, label = url(Job, "change", problem.subject), _("Job %(id)s") % {"id": problem.subject}
    elif kind in {"unreachable", "foreign_lock"}:
        target, label = url(JobStat, "database"), _("Database")
    else:
        target = url(Queue, "change", name) or _jobs(url, queue=name)
        label = _("Queue %(name)s") % {"name": name}
    starts = kind in {"no_worker", "few_workers", "unserved"}
    command = "manage.py runqueueworker" if starts else ""
    return {"text": text, "url": target, "label": label, "command": command, **found}


def _tiles(
    url: partial[str], state: QueueState, failed_now: dict[str, FailedJobs] | None
) -> list[dict[str, Any]]:
    """Return the four tiles. A figure that could not be read in time is a question mark."""
    minutes = state.hour[:-1]  # the last one is not over
    ready, oldest = _ready(state)
    busy = slots = finished = speed = failed = earlier = ""
    if crew := state.crew:
        busy, slots = number(crew.busy), _("of %(slots)s slots") % {"slots": number(crew.slots)}
    now, before = state.failed
    if state.minutes is not None:
        finished, speed = number(round(60 * state.per_second)), throughput(state.per_second)
        earlier = _("%(now)s failures, %(before)s in the hour before") % {
            "now": number(now),
            "before": number(before),
        }
    if failed_now is not None:
        failed = capped(sum(each.hour for each in failed_now.values()))
    return [
        {"label": _("Ready"), "value": ready, "note": oldest, "url": _jobs(url, due="now"),
         "line": sparkline([each.waited(0.95) for each in minutes], "second"),
         "line_label": _("how long jobs waited, p95")},
        {"label": _("Running"), "value": busy, "note": slots, "url": _jobs(url, status="running"),
         "line": sparkline([each.run_seconds for each in minutes]), "line_label": _("busy slots")},
        {"label": _("Finished a minute"), "value": finished, "note": speed, "url": url(JobStat, "changelist"),
         "line": sparkline([each.attempts for each in minutes]), "line_label": _("attempts that ended")},
        {"label": _("Failed in the last hour"), "value": failed, "note": earlier, "alarm": now > before,
         "url": _jobs(url, status="failed", finished="hour"),
         "line": sparkline([each.failed for each in minutes], "alarm"), "line_label": _("failures")},
    ]  # fmt: skip


def _ready(state: QueueState) -> tuple[str, str]:
    """Return how many jobs are ready, and what the tile says below: how long the oldest one waits that is in
    no paused queue, where that leads, what is paused, and how many jobs a worker has counted.
    """
    if state.depths is None:
        return "", ""
    depths = state.depths.values()
    ready, held = (sum(depth.ready for depth in depths if depth.is_paused >= held) for held in (False, True))
    oldest = max((depth.oldest_ready for depth in depths if not depth.is_paused), default=0.0)
    notes = [_("nothing waits")] * (not ready)
    if oldest:
        notes = [_("the oldest waits %(age)s") % {"age": age(oldest)}]
    if flow := (state.flows or {}).get(""):
        notes += [flow.text] * bool(flow.text and oldest)
        if ready > MOST:
            notes.append(flow.counted)
    if held:
        notes.append(_("%(count)s in paused queues") % {"count": capped(held)})
    return capped(ready), "; ".join(notes)


def _queue_row(state: QueueState, name: str) -> dict[str, Any]:
    """Return a queue: its jobs, how many workers serve it, and whether one of these is alarming."""
    depth = (state.depths or {}).get(name) or Depth(name)
    limit = thresholds_of(name).age
    serving = state.crew.serving(name) if state.crew else None
    is_late = limit is not None and depth.oldest_ready > limit and not depth.is_paused
    unattended = serving == 0 and depth.needs_workers and not depth.is_paused
    return {
        "name": name,
        "depth": depth,
        "lost": (state.lost or {}).get(name, 0),
        "serving": serving,
        "is_unattended": unattended,
        "is_late": is_late or unattended,
        "oldest_bar": gauge(depth.oldest_ready / (limit or 300), alarm=is_late),
    }


_MOST_OF_REASON = 400
EVERYTHING = "*"  # in the place of the name of a queue


def may_resume(site: AdminSite, request: HttpRequest) -> bool:
    """Return whether this user may resume a queue, which deletes its pause."""
    if not site.is_registered(Pause):
        return False
    admin: Any = site.get_model_admin(Pause)
    return bool(getattr(admin, "has_resume_permission", admin.has_delete_permission)(request))


def press(admin: DatabaseAdmin[Any], request: HttpRequest) -> HttpResponse:
    """Do what the button says, and show the overview again."""
    queue, button = request.POST.get("queue", ""), request.POST.get("button", "")
    if button not in {"pause", "resume"} or not queue or "\0" in queue:
        return HttpResponseBadRequest()
    site = admin.admin_site
    if not (page_url(site, request, Pause, "add") if button == "pause" else may_resume(site, request)):
        raise PermissionDenied
    using, finish = admin.writes_to, partial(note_and_tell, admin, request)
    target: dict[str, Any] = {"queue": queue}
    kind, name = Pause.Kind.QUEUE, queue
    paused_words, resumed_words = _("Queue %(name)s is paused."), _("Queue %(name)s is resumed.")
    if queue == EVERYTHING:
        target, kind, name = {"everything": True}, Pause.Kind.ALL, ""
        paused_words, resumed_words = _("Everything is paused."), _("Everything is resumed.")
    found = list(Pause.objects.using(using).filter(kind=kind, name=name))
    try:
        if button == "pause":
            reason = request.POST.get("reason", "").replace("\0", "")[:_MOST_OF_REASON]
            made = pause(**target, reason=reason, author=request.user.get_username()[:150], using=using)
            finish([made], _("Paused."), paused_words % {"name": name}, ADDITION)
        elif resume(**target, using=using):
            finish(found, _("Resumed."), resumed_words % {"name": name}, DELETION)
        else:
            finish([], "", _("It was not paused any more."))
    except ValueError:  # a user has changed the form
        return HttpResponseBadRequest()
    return HttpResponseRedirect(request.get_full_path())
