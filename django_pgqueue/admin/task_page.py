"""The page of a task: how it does over time, its policy, its source, what enqueues it, and what limits it.

A task that this process cannot find has the page, too: its jobs and figures are in the database.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlencode

from django.db.models import Q
from django.forms import Media
from django.http import HttpRequest
from django.template.response import TemplateResponse
from django.utils.html import format_html
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from .. import conf, formatting
from ..explanation import schedules as words
from ..models import Job, Limit, Pause, Schedule
from ..models.job import Status
from ..models.queue import IN_FORCE
from ..monitoring.jobs import Callers, callers
from ..monitoring.spans import breakdown, series
from ..postgres.timeout import TimeLimitReached
from ..tasks.keys import Concurrency, RateLimit, limit_name
from ..tasks.registry import known_tasks, source_place
from ..tasks.task import Task
from ..tasks.unique import Unique
from . import display
from .charts import MEDIA, chosen_span, rate_facts, span_charts, span_tabs
from .console import console_page, may_view_failures, page_url, task_url
from .display import Fact, linked
from .failures import failure_block
from .jobs.texts import breakable
from .paused import details, paused
from .schedules.page import how_soon, state_badge

if TYPE_CHECKING:
    from .base import DatabaseAdmin

MOST_SCHEDULES = 50


def task_page(admin: DatabaseAdmin[Any], request: HttpRequest, task_path: str) -> TemplateResponse:
    """Return the page for a user who may view statistics."""
    path = task_path.replace("\0", "")
    task = known_tasks().get(path)
    try:
        charts = span_charts(series(admin.database, chosen_span(request), task=path))
    except TimeLimitReached:
        charts = []
    return console_page(
        admin,
        request,
        "admin/django_pgqueue/task.html",
        path,
        pgqueue_paused=paused(admin.admin_site, request, admin.database),
        media=MEDIA + Media(css={"all": ["django_pgqueue/failures.css"]}),
        path=path,
        name=breakable(path),
        is_known=task is not None,
        summary=(task.func.__doc__ or "").strip().partition("\n")[0] if task is not None else "",
        tiles=_tiles(admin, request, path),
        charts=charts,
        span_tabs=span_tabs(request),
        facts=list(_facts(admin, request, path, task)),
        policy=policy(task) if task is not None else [],
        failures=_failures(admin, request, path),
        schedules=_schedules(admin, request, path),
        callers=_callers(admin, request, path, task),
        links=list(_links(admin, request, path)),
    )


def _tiles(admin: DatabaseAdmin[Any], request: HttpRequest, path: str) -> list[Fact]:
    """Return the figures of the whole span."""
    span = chosen_span(request)
    try:
        found = breakdown(admin.database, span, "task", task=path)
    except TimeLimitReached:
        return [Fact(_("Figures"), _("The statistics could not be read in time."))]
    if not found:
        return [Fact(_("Attempts"), _("none in this time"))]
    return rate_facts(found[0])


def _failures(admin: DatabaseAdmin[Any], request: HttpRequest, path: str) -> dict[str, Any] | None:
    """Return the largest groups of its failures, for users who may view them."""
    site = admin.admin_site
    if not may_view_failures(site, request):
        return None
    jobs = cast("DatabaseAdmin[Any]", site.get_model_admin(Job))
    return failure_block(jobs, chosen_span(request), path)


def _facts(
    admin: DatabaseAdmin[Any], request: HttpRequest, path: str, task: Task[..., Any] | None
) -> Iterator[Fact]:
    """Yield its source, and the pauses and the limits that apply to its jobs."""
    if task is not None:
        yield Fact(_("Source"), format_html("<code>{}</code>", source_place(task)))
    queue = task.queue_name if task is not None else ""
    targets = (
        Q(kind=Pause.Kind.TASK, name=path) | Q(kind=Pause.Kind.ALL) | Q(kind=Pause.Kind.QUEUE, name=queue)
    )
    for pause in Pause.objects.using(admin.database).filter(IN_FORCE & targets).order_by("kind"):
        what = {Pause.Kind.TASK: _("this task"), Pause.Kind.QUEUE: _("queue %(name)s") % {"name": queue}}
        text = format_html("{}: {}", what.get(Pause.Kind(pause.kind), _("everything")), details(pause))
        yield Fact(_("Paused"), linked(page_url(admin.admin_site, request, Pause, "change", pause.pk), text))
    names = {path, "*", f"queue:{queue}"}
    if task is not None:
        names |= {limit_name(task) or path}
    yield from limit_facts(admin, request, names)


def limit_facts(admin: DatabaseAdmin[Any], request: HttpRequest, names: Iterable[str]) -> Iterator[Fact]:
    """Yield the limits with these names, and their numbers in force."""
    for limit in Limit.objects.using(admin.database).filter(pk__in=names).order_by("-pk"):
        parts = [_at_once(limit.concurrency)] if limit.concurrency is not None else []
        if limit.rate is not None and limit.per is not None:
            parts.append(_at_most(limit.rate, limit.per))
        url = page_url(admin.admin_site, request, Limit, "change", limit.pk)
        yield Fact(_("Limit"), linked(url, f"{limit.pk}: {', '.join(parts) or '-'}"))


def _at_once(count: int) -> str:
    return _("at most %(count)s at once") % {"count": formatting.number(count)}


def _at_most(count: int, per: timedelta) -> str:
    return _("at most %(rate)s") % {"rate": formatting.rate(count, per)}


def _schedules(admin: DatabaseAdmin[Any], request: HttpRequest, path: str) -> list[dict[str, Any]] | None:
    """Return the schedules that enqueue it; None for a user who may not view schedules."""
    if not page_url(admin.admin_site, request, Schedule, "changelist"):
        return None
    rows = Schedule.objects.using(admin.database).filter(task_path=path).order_by("name")
    return [
        {
            "name": breakable(schedule.pk),
            "url": page_url(admin.admin_site, request, Schedule, "change", schedule.pk),
            "timing": words.timing(schedule),
            "state": state_badge(schedule),
            "next": _next_run(schedule),
        }
        for schedule in words.with_clock(rows)[:MOST_SCHEDULES]
    ]


def _next_run(schedule: Any) -> str:
    """Return how soon it runs; empty if it does not."""
    if not schedule.is_active:
        return ""
    try:
        [run] = words.next_runs(schedule, 1)
    except ValueError:
        return _("cannot run")
    return how_soon(run, schedule.now)


def _callers(
    admin: DatabaseAdmin[Any], request: HttpRequest, path: str, task: Task[..., Any] | None
) -> dict[str, Any]:
    """Return what enqueues it, as far as that is known."""
    try:
        found, is_slow = callers(admin.database, path), False
    except TimeLimitReached:
        found, is_slow = Callers(), True
    payload = task.payload._meta.label if task is not None and task.payload is not None else ""
    parents = [
        {"name": breakable(each), "url": task_url(admin.admin_site, request, each)} for each in found.parents
    ]
    return {"found": found, "is_slow": is_slow, "payload": payload, "parents": parents}


def _links(admin: DatabaseAdmin[Any], request: HttpRequest, path: str) -> Iterator[dict[str, Any]]:
    """Yield the links to its jobs by status, to its failures, and to the form that pauses it."""
    if jobs := page_url(admin.admin_site, request, Job, "changelist"):
        for status in Status:
            query = urlencode({"task": path, "status": status.value})
            yield {"label": display.status_badge(status), "url": f"{jobs}?{query}"}
        if may_view_failures(admin.admin_site, request):
            failures = page_url(admin.admin_site, request, Job, "failures")
            yield {"label": _("Failures by group"), "url": f"{failures}?{urlencode({'task': path})}"}
    if pause := page_url(admin.admin_site, request, Pause, "add"):
        yield {"label": _("Pause"), "url": f"{pause}?{urlencode({'kind': 'task', 'name': path})}"}


# ----------------------------------------------------------------------------
# The policy of a task in words: every option of its definition, and where a default comes from.


@dataclass(frozen=True, slots=True)
class Option:
    """One option."""

    label: str
    text: str
    is_default: bool = False


def policy(task: Task[..., Any]) -> list[Option]:
    """Return the options of a task, in the order in which they matter in the life of a job."""
    priority = _("%(queue)s, priority %(priority)d") % {"queue": task.queue_name, "priority": task.priority}
    attempts = task.policy().max_attempts
    return [
        Option(_("Queue"), priority if task.priority else task.queue_name, not task.priority),
        Option(_("Calls"), _calls(task), task.payload is None),
        Option(_("Unique"), _unique(task.unique), task.unique is None),
        Option(_("Concurrency"), _concurrency(task.concurrency), task.concurrency is None),
        Option(_("Rate"), _rate(task.rate_limit), task.rate_limit is None),
        Option(_("Group"), _key(task.group) if task.group else _("none"), task.group is None),
        Option(_("Attempts"), _by_default(formatting.number(attempts), task.max_attempts, "MAX_ATTEMPTS"),
               task.max_attempts is None),
        Option(_("Wait before a retry"), _backoff(task), task.backoff is None),
        Option(_("Retried after"), _names(task.retry_on) or _("any exception"), task.retry_on is None),
        Option(_("Fails at once after"), _names(task.fail_on) or _("no exception"), task.fail_on is None),
        Option(_("Timeout"), _timeout(task), task.timeout is None),
        Option(_("Expires"), _expires(task.expires_after), task.expires_after is None),
        Option(_("If its worker is lost"), _lost(task), task.on_lost == "rerun"),
        Option(_("Runs"), _runs(task), not (task.atomic or task.takes_context)),
        Option(_("Logs"), _logs(task), task.capture_logs is None),
        Option(_("Database"), task.database or _("that of its backend"), task.database is None),
    ]  # fmt: skip


def _by_default(text: str, given: Any, setting: str) -> str:
    if given is not None:
        return text
    return _("%(value)s (the setting %(setting)s)") % {"value": text, "setting": setting}


def _calls(task: Task[..., Any]) -> str:
    if task.payload is None:
        return _("with arguments")
    return _("the rows of %(model)s") % {"model": task.payload._meta.label}


def _unique(unique: Unique | None) -> str:
    if unique is None:
        return _("no, every call is a job")
    if unique.window is not None:
        how_long = _("once in %(period)s") % {"period": formatting.exact(unique.window)}
    elif unique.scope == "live":
        how_long = _("until the job has finished")
    else:
        how_long = _("while the job waits")
    by = _("by all arguments") if unique.key is None else _("by %(what)s") % {"what": _key(unique.key)}
    if unique.key == ():
        by = _("for any arguments")
    if unique.name is not None:
        by += ", " + _("by the name %(name)s") % {"name": unique.name}
    again = {
        "existing": _("another call returns the existing job"),
        "replace": _("another call replaces it"),
        "earliest": _("another call lets it run at the earlier time"),
        "raise": _("another call raises an error"),
    }
    return ", ".join([how_long, by, again.get(unique.on_conflict, unique.on_conflict)])


def _concurrency(limit: Concurrency | None) -> str:
    if limit is None:
        return _("any number at once")
    parts = [_at_once(limit.limit), *_scope(limit)]
    others = {"cancel_new": _("others are cancelled"), "cancel_old": _("a new one cancels older ones")}
    parts.append(others.get(limit.on_full, _("others wait")))
    return ", ".join(parts)


def _rate(rate: RateLimit | None) -> str:
    if rate is None:
        return _("any number of starts")
    parts = [_at_most(rate.limit, rate.per)]
    if rate.burst > 1:
        parts.append(
            _("up to %(count)s at once after a quiet time") % {"count": formatting.number(rate.burst)}
        )
    return ", ".join([*parts, *_scope(rate)])


def _scope(limit: Concurrency | RateLimit) -> Iterator[str]:
    """Yield whose jobs share the limit."""
    if limit.key is not None:
        yield _("for each %(key)s") % {"key": _key(limit.key)}
    if limit.name is not None:
        yield _("limit %(name)s") % {"name": limit.name}


def _backoff(task: Task[..., Any]) -> str:
    backoff = task.backoff
    if backoff is None:
        settings = conf.current()
        return _("%(base)s, doubled up to %(ceiling)s, unless the queue has its own") % {
            "base": formatting.span(settings.backoff_base),
            "ceiling": formatting.span(settings.backoff_ceiling),
        }
    if callable(backoff):
        return _("%(function)s decides") % {"function": _key(backoff)}
    waits: Any = backoff  # in seconds: a task keeps no timedelta
    if isinstance(waits, (int, float)):
        return formatting.span(waits)
    return _("%(waits)s; the last one repeats") % {
        "waits": ", ".join(formatting.span(each) for each in waits)
    }


def _timeout(task: Task[..., Any]) -> str:
    seconds = task.policy().timeout
    text = _("none") if seconds is None else formatting.span(seconds)
    return _by_default(text, task.timeout, "TIMEOUT")


def _expires(after: timedelta | None) -> str:
    if after is None:
        return _("never")
    return _("if it has not started after %(period)s") % {"period": formatting.exact(after)}


def _lost(task: Task[..., Any]) -> str:
    crashes = conf.current().crash_limit
    if task.on_lost == "fail":
        return _("it fails")
    words = ngettext(
        "it runs again, and fails after %(count)d crash", "it runs again, and fails after %(count)d crashes",
        crashes,
    )  # fmt: skip
    return words % {"count": crashes}


def _runs(task: Task[..., Any]) -> str:
    parts = [_("on the event loop") if iscoroutinefunction(task.func) else _("on a thread")]
    if task.atomic:
        parts.append(_("in one transaction with its finish"))
    if task.takes_context:
        parts.append(_("takes the context"))
    return ", ".join(parts)


def _logs(task: Task[..., Any]) -> str:
    if task.capture_logs is None:
        return _("as CAPTURE_LOGS says")
    if task.capture_logs is False:
        return _("are not kept")
    if task.capture_logs is True:
        return _("are kept")
    return _("are kept from %(level)s on") % {"level": task.capture_logs}


def _key(key: Any) -> str:
    """Return the name of an argument, several of them, or a callable."""
    if callable(key):
        return f"{getattr(key, '__qualname__', None) or type(key).__qualname__}()"
    return key if isinstance(key, str) else ", ".join(map(str, key))


def _names(types: tuple[type[BaseException], ...] | None) -> str:
    return ", ".join(each.__qualname__ for each in types or ())
