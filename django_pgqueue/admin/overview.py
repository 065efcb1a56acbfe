"""The overview: is the queue well? The health with its problems, tiles, charts, queues, failures and workers,
of one database, or of all shards, added up.

The page is read again in two parts, ``?part=now`` and ``?part=charts``, by the script ``live.js``. A part is
the same template without its frame, so blocks that a project replaces are refreshed, too.

Each statement has a time limit. What was too slow is not shown, and the page says so. A shard that does not
answer is a problem and has a row that says so. It adds nothing to the figures, whose notes name it: a sum
without it is not the whole.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from copy import copy
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from django.contrib.admin import AdminSite
from django.contrib.admin.models import ADDITION, DELETION
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseBadRequest, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.utils.translation import gettext as _, pgettext

from ..formatting import age, number, throughput
from ..jobs.limits import pause, paused_target, resume
from ..models import Job, JobStat, Limit, Pause, Queue, Schedule, Worker
from ..monitoring.depth import MOST, Depth, DepthPoint, capped, depth_series
from ..monitoring.health import PATIENCE, Health, HealthProblem, QueueState, judge, read, thresholds_of
from ..monitoring.queues import FailedJobs, failed_jobs
from ..monitoring.spans import HOUR, SHARES, Figures, breakdown, rates, series
from ..postgres.ask import Answers, too_slow
from ..postgres.timeout import within
from ..tasks.registry import queues_in_use
from . import charts
from .base import DatabaseAdmin
from .charts import Chart, Color, sparkline
from .console import Paused, assets, console_page, of_row, page_url, paused, site_url, with_query
from .display import linked
from .failures import failure_block
from .shards import added_up, by_name, is_of_all, joined, named, of_page, over_shards, shard_links, with_shard
from .tasks import limit_words
from .workers import worker_rows

MOST_WORKERS = 100
MOST_QUEUES = 200
_TEMPLATE = "admin/django_pgqueue/overview.html"
_MEDIA = charts.MEDIA + assets("overview")


def overview(admin: DatabaseAdmin[Any], request: HttpRequest) -> HttpResponse:
    """Return the page, or a part of it, for a user who may view jobs. ``admin`` is the admin of jobs, with
    its site and database.
    """
    if request.method == "POST":
        return press(admin, request)
    query: Any = request.GET.copy()
    part = "".join(query.pop("part", []))
    request.GET = query  # the links of a part lead to the whole page
    template, title = _TEMPLATE, _("Overview of the queues")
    if is_all := is_of_all(request):
        template, title = "admin/django_pgqueue/overview_shards.html", _("Overview of all shards")
    shows_now, shows_charts = part != "charts", part != "now"
    context: dict[str, Any] = {"shows_now": shows_now, "shows_charts": shows_charts}
    slow_text = _("The database did not answer within %(limit)s, so some figures are missing here.")
    context["slow_text"] = slow_text % {"limit": age(PATIENCE)}
    shards, graphs = ask_shards(admin, request, shows_now=shows_now, shows_charts=shows_charts)
    if shows_now:
        context |= _now(admin, request, shards)
    if shows_charts:
        context |= {"charts": [], "span": "", "times": charts.span_filter(request)}
        context["slow_charts"] = bool(graphs.failed)
        if graphs.given:
            names, points, counted = zip(*graphs.given.values(), strict=True)
            drawn = _drawn(joined(points, most={"seconds"}), joined(counted))
            context |= {"charts": drawn, "span": names[0]}
        if is_all:
            context["slow_text"] = str(graphs)
    if part in {"now", "charts"}:
        request.current_app = admin.admin_site.name
        frame = {"pgqueue_frame": "admin/django_pgqueue/part.html", "opts": admin.opts}
        return TemplateResponse(request, template, {**frame, **context})
    return console_page(admin, request, template, title, media=_MEDIA, **context)


def _now(admin: DatabaseAdmin[Any], request: HttpRequest, answers: Answers[ShardFigures]) -> dict[str, Any]:
    """Return what changes by the second."""
    site, is_all, given = admin.admin_site, is_of_all(request), answers.given
    url = partial(page_url, site, request)
    may_pause, resumes = bool(url(Pause, "add")), may_resume(site, request) and not is_all

    def said(alias: str, text: Any) -> Any:
        return named({alias: text}) if is_all else text

    pauses: dict[str, Paused] = {}
    troubles = [{"text": text} for text in unreachable(answers)]
    for alias, shard in given.items():
        with of_row(alias if is_all else ""):  # its links lead to the shard
            pauses[alias] = paused(site, request, alias, shard.state.pauses or [])
            for problem in shard.health.problems:
                found = _trouble(url, problem, pauses[alias], resumes)
                troubles.append(found | {"text": said(alias, found["text"])})
    every_failed = [shard.failed for shard in given.values()]
    failed = None
    if is_all or None not in every_failed:
        failed = [each for some in every_failed for each in (some or {}).values()]
    tiles = _tiles(url, state_of(shard.state for shard in given.values()), failed)
    if answers.failed:
        without = _("without %(names)s") % {"names": ", ".join(answers.failed)}
        for tile in tiles:
            tile["note"] = "; ".join(filter(None, [tile["note"], without]))
            tile["value"] = tile["value"] if given else ""
    pauses_all = may_pause and not all(each.everything for each in pauses.values())
    context = {
        **queues_of(answers, pauses, url, is_all=is_all),
        "troubles": troubles,
        "notes": [said(alias, note) for alias, each in pauses.items() for note in each.tasks_said],
        "tiles": tiles,
        "any_lost": any(shard.state.lost for shard in given.values()),
        "jobs_url": url(Job, "changelist"),
        "pauses_all": EVERYTHING if pauses_all else "",
    }
    if is_all:
        root, pages = site_url(site, "app_list", admin.opts.app_label), url(Job, "overview")
        shards = [shard_row(alias, answers, with_shard(pages, alias, root)) for alias in of_page(admin)]
        return context | {"health": health_of_all(answers), "shards": shards}
    [shard] = given.values()
    limits = _limits(url, admin.database, shard, [row["name"] for row in context["queues"]])
    for row in context["queues"]:
        row["limit"] = (limits or {}).get(f"queue:{row['name']}")
    workers = shard.state.crew.workers if shard.state.crew else []
    return context | {
        "health": shard.health,
        "every_limit": (limits or {}).get("*"),
        "may_pause": may_pause,
        "may_resume": resumes,
        "failures": failure_block(admin) if url(Job, "failures") else None,
        **worker_rows(url, workers, MOST_WORKERS),
        "slow_queues": limits is None or not shard.is_whole,
        "slow_workers": shard.state.crew is None,
    }


def _limits(
    url: partial[str], alias: str, shard: ShardFigures, queues: Iterable[str]
) -> dict[str, Any] | None:
    """Return the limits of these queues and of all, with how many of their jobs run; None if not in time."""
    running = {f"queue:{name}": depth.running for name, depth in (shard.state.depths or {}).items()}
    running["*"] = sum(running.values())
    keys = ["*", *(f"queue:{name}" for name in queues)]
    found = within(alias, PATIENCE, lambda: Limit.objects.using(alias).in_bulk(keys))
    if found is None:
        return None
    return {
        key: linked(url(Limit, "change", key), limit_words(limit, running.get(key, 0)))
        for key, limit in found.items()
    }


_SOON = 30  # seconds; workers write their figures every ten seconds


def _drawn(points: Sequence[Figures], counted: Sequence[DepthPoint]) -> list[Chart]:
    """Return the charts of these points. The last one has not ended."""
    points = [point for point in points if point.seconds >= _SOON]
    starts = [point.start for point in points]
    kinds: list[tuple[str, str, Color]] = [
        (pgettext("number of jobs", "failed"), "failed", "alarm"),
        (pgettext("number of jobs", "retried"), "retried", "quiet"),
        (pgettext("number of jobs", "done"), "done", "main"),
    ]
    attempts = [
        charts.numbers(label, [60 * getattr(point, name) / point.seconds for point in points], color)
        for label, name, color in kinds
    ]
    times = [
        *charts.percentiles(points, "wait", SHARES, _("waited"), ("second", "third", "fourth")),
        *charts.percentiles(points, "run", SHARES, _("ran"), ("main", "fifth", "sixth")),
    ]
    ran = [
        Chart("pgqueue-throughput", _("Attempts a minute"), starts, attempts, kind="bars"),
        Chart("pgqueue-times", _("How long jobs waited and ran"), starts, times, unit="seconds"),
    ]
    return charts.with_deploys(counted, [*ran, *charts.depth_charts(counted, points)])


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
        target, label = url(Job, "failures") or jobs_url(url, status="failed", finished="hour"), _("Failures")
    elif kind == "skips":
        target = url(Schedule, "change", problem.subject)
        label = _("Schedule %(name)s") % {"name": problem.subject}
    elif kind == "slow_job":
        target, label = url(Job, "change", problem.subject), _("Job %(id)s") % {"id": problem.subject}
    elif kind in {"unreachable", "foreign_lock"}:
        target, label = url(JobStat, "database"), _("Database")
    else:
        target = queue_url(url, name)
        label = _("Queue %(name)s") % {"name": name}
    starts = kind in {"no_worker", "few_workers", "unserved"}
    command = "manage.py runqueueworker" if starts else ""
    return {"text": text, "url": target, "label": label, "command": command, **found}


def _tiles(
    url: partial[str], state: QueueState, failed_now: Sequence[FailedJobs] | None
) -> list[dict[str, Any]]:
    """Return the four tiles. A figure that could not be read in time is a question mark."""
    minutes = state.hour[:-1]  # the last one has not ended
    ready, oldest = _ready(state)
    running = finished = speed = failed = earlier = ""
    hour = before = 0
    if state.depths is not None:
        running = number(sum(depth.running for depth in state.depths.values()))
    crew = state.crew
    slots = {name: number(getattr(crew, name)) if crew else "?" for name in ("busy", "slots")}
    busy = _("%(busy)s of %(slots)s slots") % slots
    if state.minutes is not None:
        finished, speed = number(round(60 * state.per_second)), throughput(state.per_second)
    if failed_now is not None:
        hour, before = (sum(getattr(each, name) for each in failed_now) for name in ("hour", "before"))
        failed = capped(hour)
        earlier = _("not retried since; %(count)s in the hour before") % {"count": capped(before)}
    return [
        {"label": _("Ready"), "value": ready, "note": oldest, "url": jobs_url(url, due="now"),
         "line": sparkline([each.waited(0.95) for each in minutes], "second"),
         "line_label": _("how long jobs waited, p95")},
        {"label": _("Running"), "value": running, "note": busy, "url": jobs_url(url, status="running"),
         "line": sparkline([each.run_seconds for each in minutes]), "line_label": _("busy slots")},
        {"label": _("Finished a minute"), "value": finished, "note": speed, "url": url(JobStat, "changelist"),
         "line": sparkline([each.attempts for each in minutes]), "line_label": _("attempts that ended")},
        {"label": _("Failed in the last hour"), "value": failed, "note": earlier, "alarm": hour > before,
         "url": jobs_url(url, status="failed", finished="hour"),
         "line": sparkline([each.failed for each in minutes], "alarm"),
         "line_label": _("failures, retried or not")},
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


_PART = 1.0  # seconds for a part of one of several shards


class ShardFigures(NamedTuple):
    """What a database knows of now. A part is None if it could not be read in time."""

    state: QueueState
    health: Health
    failed: dict[str, FailedJobs] | None
    names: Collection[str] | None
    hour: dict[str, Figures] | None
    rates: dict[str, float] | None

    @property
    def is_whole(self) -> bool:
        """Whether all figures of the queues could be read in time."""
        return None not in (self.state.depths, self.state.lost, *self[2:])

    @property
    def all_queues(self) -> set[str]:
        """The names of all queues."""
        return {*(self.state.depths or {}), *(self.names or ())}

    def queues(self) -> dict[str, dict[str, Any]]:
        """Return the queues: their jobs, how many workers serve each, and whether that is alarming."""
        state, found = self.state, {}
        for name in sorted(self.all_queues)[:MOST_QUEUES]:
            depth = (state.depths or {}).get(name) or Depth(name)
            limit = thresholds_of(name).age
            serving = state.crew.serving(name) if state.crew else None
            is_late = limit is not None and depth.oldest_ready > limit and not depth.is_paused
            unattended = serving == 0 and depth.needs_workers and not depth.is_paused
            found[name] = {
                "name": name,
                "depth": depth,
                "lost": (state.lost or {}).get(name, 0),
                "serving": serving,
                "is_unattended": unattended,
                "is_late": is_late or unattended,
                "oldest_bar": charts.gauge(depth.oldest_ready / (limit or 300), alarm=is_late),
                "hour": (self.hour or {}).get(name),
                "rate": (self.rates or {}).get(name, 0.0),
                "failed": (self.failed or {}).get(name, FailedJobs()).day,
                "has_depth": state.depths is not None,  # no zeros for what could not be read in time
                "has_hour": self.hour is not None,
                "has_failed": self.failed is not None,
            }
        return found


def ask_shards(
    admin: Any, request: HttpRequest, *, shows_now: bool, shows_charts: bool
) -> tuple[Answers[ShardFigures], Answers[Any]]:
    """Return what is known of now, and the name of the span of the charts with their points, as far as it is
    asked. Each shard is asked once, so one that hangs holds up a page once.
    """
    seconds = _PART if is_of_all(request) else PATIENCE

    def ask(alias: str) -> tuple[list[ShardFigures], Any]:
        found, drawn, in_time = [], None, partial(within, alias, seconds)
        if shows_now:
            state = read(alias)
            parts: Any = (failed_jobs, queues_in_use, _last_hour, rates)
            found = [ShardFigures(state, judge(state), *(in_time(partial(part, alias)) for part in parts))]
        if shows_charts:
            span = charts.chosen_span(request, alias)  # by the clock of its server
            known = found[0].state.hour if found and span is HOUR else ()
            drawn = in_time(lambda: (span.name, known or series(alias, span), depth_series(alias, span)))
        return found, drawn

    answers = over_shards(admin, ask)
    shards = {alias: each for alias, (found, _drawn) in answers.given.items() for each in found}
    drawn = {alias: found for alias, (_shard, found) in answers.given.items() if found}
    slow = {alias: too_slow(seconds) for alias in answers.given if shows_charts and alias not in drawn}
    return Answers(shards, answers.failed), Answers(drawn, answers.failed | slow)


def _last_hour(alias: str) -> dict[str, Figures]:
    return {row.queue_name: row for row in breakdown(alias, HOUR, "queue", most=MOST_QUEUES)}


def state_of(states: Iterable[QueueState]) -> QueueState:
    """Return the figures of one, or of all as the tiles read them, as far as they could be read."""
    states = [*states]
    if len(states) == 1:
        return states[0]
    found = QueueState("")
    found.depths = {
        f"{state.alias}:{name}": depth for state in states for name, depth in (state.depths or {}).items()
    }
    if crews := [state.crew for state in states if state.crew]:
        found.crew = copy(crews[0])
        found.crew.workers = [worker for crew in crews for worker in crew.workers]
    if minutes := [state.minutes for state in states if state.minutes is not None]:
        found.minutes = joined(minutes, most={"seconds"})
    return found


def health_of_all(answers: Answers[ShardFigures]) -> Health:
    """Return the health of all, each problem with the name of its shard."""
    problems = [HealthProblem("unreachable", "", text) for text in unreachable(answers)]
    for alias, shard in answers.given.items():
        problems += [replace(each, text=f"{alias}: {each}") for each in shard.health.problems]
    every = [shard.health for shard in answers.given.values()]
    return Health(
        "",
        tuple(problems),
        workers=sum(each.workers for each in every),
        ready=sum(each.ready for each in every),
        oldest_ready=max((each.oldest_ready for each in every), default=0.0),
        per_second=sum(each.per_second for each in every),
    )


def unreachable(answers: Answers[Any]) -> list[str]:
    """Return a sentence about each shard that did not answer."""
    return [str(Answers[Any]({}, {alias: why})) for alias, why in answers.failed.items()]


def jobs_url(url: partial[str], **filters: str) -> str:
    """Return the URL of a list of jobs; empty for a user who may not view it."""
    return with_query(url(Job, "changelist"), **filters)


def queues_of(
    answers: Answers[ShardFigures], pauses: dict[str, Paused], url: partial[str], *, is_all: bool
) -> dict[str, Any]:
    """Return the queues of a database, or of all shards that could be read, added up by name."""
    given = {alias: each for alias, each in answers.given.items() if each.is_whole or not is_all}
    without, found = [alias for alias in (*answers.given, *answers.failed) if alias not in given], []
    parts = by_name({alias: each.queues() for alias, each in given.items()})
    for name, rows in sorted(parts.items())[:MOST_QUEUES]:
        every = [*rows.values()]
        hours = [row["hour"] for row in every if row["hour"]]
        serving = [row["serving"] for row in every]
        paused = {alias: pauses[alias].queues.get(name, "") for alias in rows}
        address = partial(queue_url, url, name)
        found.append({
            **max(every, key=lambda row: row["depth"].oldest_ready),
            "url": "" if is_all else address(),
            "shards": shard_links(rows, address, without) if is_all else "",
            "depth": added_up([row["depth"] for row in every], most={"oldest_ready", "longest_running"}),
            "hour": added_up(hours, most={"seconds"}) if hours else None,
            "serving": None if None in serving else sum(serving),
            "paused": named(paused, "; ") if is_all else next(iter(paused.values())),
            **{key: sum(row[key] for row in every) for key in ("lost", "rate", "failed")},
            **{key: any(row[key] for row in every) for key in ("is_unattended", "is_late")},
        })  # fmt: skip
    count = len({name for each in given.values() for name in each.all_queues})
    return {"queues": found, "more_queues": max(0, count - MOST_QUEUES)}


def queue_url(url: partial[str], name: str) -> str:
    """Return the page of a queue, or its jobs."""
    return url(Queue, "change", name) or jobs_url(url, queue=name)


def shard_row(alias: str, answers: Answers[ShardFigures], url: str) -> dict[str, Any]:
    """Return a shard with its figures; "?" for what could not be read in time."""
    if alias not in answers.given:
        return {"name": alias, "url": url, "why": answers.failed[alias]}
    state, health, failed, *_more = answers.given[alias]
    depths = None if state.depths is None else [*state.depths.values()]
    return {
        "name": alias,
        "url": url,
        "is_well": health.is_working,
        "problems": number(len(health.problems)),
        "ready": "?" if depths is None else capped(sum(depth.ready for depth in depths)),
        "oldest": age(health.oldest_ready) if health.oldest_ready else "-",
        "running": "?" if depths is None else number(sum(depth.running for depth in depths)),
        "workers": "?" if state.crew is None else number(health.workers),
        "slots": "?" if state.crew is None else number(state.crew.slots),
        "rate": "?" if state.minutes is None else throughput(state.per_second),
        "failed": "?" if failed is None else capped(sum(each.hour for each in failed.values())),
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
    site, is_all = admin.admin_site, is_of_all(request)
    if not (page_url(site, request, Pause, "add") if button == "pause" else may_resume(site, request)):
        raise PermissionDenied
    if is_all and (button, queue) != ("pause", EVERYTHING):
        return HttpResponseBadRequest()
    finish, target = partial(admin.note_and_tell, request), dict[str, Any](queue=queue)
    paused_words, resumed_words = _("Queue %(name)s is paused."), _("Queue %(name)s is resumed.")
    if queue == EVERYTHING:
        target = {"everything": True}
        paused_words, resumed_words = _("Everything is paused."), _("Everything is resumed.")
    reason = request.POST.get("reason", "").replace("\0", "")[:_MOST_OF_REASON]
    act = partial(pause, **target, reason=reason, author=request.user.get_username()[:150])
    try:
        kind, name = paused_target(button, **target)
        found = list(Pause.objects.using(admin.writes_to).filter(kind=kind, name=name))
        if button == "pause":  # with a commit in each shard; to repeat it is harmless
            answers = over_shards(admin, lambda alias: act(using=alias), keep=True)
            words = paused_words % {"name": name}
            if is_all:
                said = _("Everything is paused on %(names)s.") % {"names": ", ".join(answers.given) or "-"}
                words = " ".join(filter(None, [said, str(answers)]))
            finish([*answers.given.values()], _("Paused."), words, ADDITION)
        elif resume(**target, using=admin.writes_to):
            finish(found, _("Resumed."), resumed_words % {"name": name}, DELETION)
        else:
            finish([], "", _("It was not paused any more."))
    except ValueError:  # a user has changed the form
        return HttpResponseBadRequest()
    return HttpResponseRedirect(request.get_full_path())
