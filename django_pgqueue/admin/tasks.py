"""Tasks and the database: pages of the model of the statistics, whose permission they need.

The list has every task that ran in the span or that this process can find, with its figures. It is made from
the statistics of the span: at most ``MOST_TASKS`` rows, sorted and searched in memory.

The page of a task says how it does over time, its policy, its source, what enqueues it, and what limits it. A
task that this process cannot find has the page, too: its jobs and figures are in the database.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from datetime import timedelta
from functools import partial
from inspect import iscoroutinefunction
from types import SimpleNamespace
from typing import Any

from django.core.paginator import Paginator
from django.db.models import Q
from django.http import HttpRequest
from django.template.response import TemplateResponse
from django.urls import URLPattern
from django.utils.html import format_html
from django.utils.translation import gettext as _, gettext_lazy, ngettext, pgettext_lazy

from .. import conf, formatting
from ..explanation import schedules as words
from ..models import Job, JobStat, Limit, Pause, Schedule
from ..models.job import Status
from ..models.queue import IN_FORCE
from ..monitoring.depth import depth_series
from ..monitoring.jobs import Callers, callers
from ..monitoring.spans import Figures, Trend, breakdown, percentile_text, series, trends
from ..postgres.timeout import TimeLimitReached
from ..tasks.keys import Concurrency, RateLimit, limit_name
from ..tasks.registry import known_tasks, source_place
from ..tasks.task import Task
from ..tasks.unique import Unique
from . import charts, display
from .base import DatabaseAdmin, ReadOnlyAdmin
from .console import Paused, assets, console_page, details, page_url, paused, target, task_url, with_query
from .database_page import database_page, doctor_page
from .display import Fact, breakable, linked
from .failures import failure_block
from .limits import pause_button
from .lists import NamesInUse, address, names_filter
from .schedules.page import next_run, state_badge
from .shards import added_up, by_name, is_of_all, named, over_shards, said_without, shard_links, union

MOST_TASKS = 1000
PER_PAGE = 50
MOST_SCHEDULES = 50
ORDER_VAR, PAGE_VAR, QUEUE_VAR, SEARCH_VAR = "o", "p", "queue", "q"
_COLUMNS: dict[str, tuple[Any, Any]] = {
    "task": (gettext_lazy("task"), lambda row: row.task_path),
    "rate": (gettext_lazy("rate"), lambda row: row.attempts),
    "errors": (pgettext_lazy("share of the attempts", "errors"), lambda row: charts.error_rate(row) or 0),
    "failed": (pgettext_lazy("number of jobs", "failed"), lambda row: row.failed),
    "retried": (pgettext_lazy("number of jobs", "retried"), lambda row: row.retried),
    "done": (pgettext_lazy("number of jobs", "done"), lambda row: row.done),
    "wait50": ("p50", lambda row: row.waited(0.5) or 0),
    "wait95": ("p95", lambda row: row.waited(0.95) or 0),
    "run50": ("p50", lambda row: row.ran(0.5) or 0),
    "run95": ("p95", lambda row: row.ran(0.95) or 0),
}
DEFAULT_ORDER = "-rate"


class JobStatAdmin(ReadOnlyAdmin[JobStat]):
    """Shows how the tasks do, one of them, and the state of the database. The rows of the model, the
    statistics, have no pages of their own.
    """

    reading_pages = frozenset({"changelist", "task"})

    def get_urls(self) -> list[URLPattern]:
        """Return the pages."""
        return [
            self.viewpage("", task_list, "changelist"),
            self.viewpage("database/", database_page, "database"),
            self.viewpage("database/doctor/", doctor_page, "database_doctor"),
            self.viewpage("task/<path:task_path>/", task_page, "task"),
        ]


def task_list(admin: DatabaseAdmin[Any], request: HttpRequest) -> TemplateResponse:
    """Return the page for a user who may view statistics."""
    site, known, queue = admin.admin_site, known_tasks(), _given(request, QUEUE_VAR)
    is_all = is_of_all(request)

    def read(alias: str) -> Any:
        span, ran = charts.chosen_span(request, alias), None  # None: not in time
        try:
            ran = breakdown(alias, span, "task", queue=queue, most=MOST_TASKS)
        except TimeLimitReached:
            if is_all:  # like a shard that does not answer
                raise
        banner = paused(site, request, alias).everything
        return SimpleNamespace(span=span, ran=ran, queues=NamesInUse(alias).queues, paused=banner)

    answers = over_shards(admin, read)
    given = answers.given
    shards = by_name({alias: {row.task_path: row for row in each.ran or ()} for alias, each in given.items()})
    rows = [added_up([*parts.values()], most={"seconds"}) for parts in shards.values()]
    start: Any = rows[0].start if rows else None
    rows += [
        Figures(start, task_path=path)
        for path, task in known.items()
        if path not in shards and queue in {"", task.queue_name}
    ]
    words = _given(request, SEARCH_VAR).casefold().split()
    found = [row for row in rows if all(word in row.task_path.casefold() for word in words)]
    order = _given(request, ORDER_VAR)
    order = order if order.removeprefix("-") in _COLUMNS else DEFAULT_ORDER
    _sort(found, order)
    page = Paginator(found, PER_PAGE).get_page(_given(request, PAGE_VAR))
    names = [row.task_path for row in page if row.attempts]
    lines: list[dict[str, Trend]] = []
    with suppress(TimeLimitReached):
        drawn = over_shards(admin, lambda alias: trends(alias, given[alias].span, "task", names), only=given)
        lines = [*drawn.given.values()]

    def links_to(path: str) -> Any:
        return shard_links(shards.get(path, ()), partial(task_url, site, request, path), answers.failed)

    def drawn_trend(row: Figures) -> str:
        return charts.sparkline(added_up([each[row.task_path] for each in lines]).attempts)

    banners = {alias: each.paused for alias, each in given.items()}
    pages = [
        {"number": each, "url": address(request, {PAGE_VAR: each}), "is_current": each == page.number}
        for each in page.paginator.page_range
    ]
    return console_page(
        admin,
        request,
        "admin/django_pgqueue/task_list.html",
        _("Tasks"),
        pgqueue_paused=Paused(everything=named(banners) if is_all else next(iter(banners.values()), "")),
        unanswered=said_without(answers),
        rows=[
            {
                "figures": row,
                "url": "" if is_all else task_url(site, request, row.task_path),
                "shards": links_to(row.task_path) if is_all else "",
                "is_known": row.task_path in known,
                "errors": charts.share_text(charts.error_rate(row)),
                "times": [
                    percentile_text(histogram, share)
                    for histogram in (row.wait_histogram, row.run_histogram)
                    for share in (0.5, 0.95)
                ],
                "trend": drawn_trend(row) if row.attempts and lines else "",
            }
            for row in page
        ],
        count=len(found),
        most=MOST_TASKS if any(len(each.ran or ()) == MOST_TASKS for each in given.values()) else 0,
        is_slow=any(each.ran is None for each in given.values()),
        columns=_headings(request, order),
        filters=[
            names_filter(request, _("queue"), QUEUE_VAR, union(each.queues for each in given.values())),
            charts.span_filter(request),
        ],
        hidden={
            name: request.GET[name]
            for name in ("span", "span_from", "span_to", QUEUE_VAR, ORDER_VAR)
            if name in request.GET
        },
        search=_given(request, SEARCH_VAR),
        pages=pages if len(pages) > 1 else [],
    )


def _given(request: HttpRequest, name: str) -> str:
    return request.GET.get(name, "").strip()


def _sort(rows: list[Figures], order: str) -> None:
    """Sort by a column, and by name where it is equal. Tasks that did not run come last."""
    key = _COLUMNS[order.removeprefix("-")][1]
    rows.sort(key=lambda row: row.task_path)
    rows.sort(key=key, reverse=order.startswith("-"))
    if order.removeprefix("-") != "task":
        rows.sort(key=lambda row: not row.attempts)


def _headings(request: HttpRequest, order: str) -> list[dict[str, Any]]:
    """Return the headings with links that sort. A second press turns the order around."""
    found = []
    for name, (label, _key) in _COLUMNS.items():
        directions = {name: "ascending", f"-{name}": "descending"}
        first, second = directions if name == "task" else reversed(directions)
        target = address(request, {ORDER_VAR: second if order == first else first, PAGE_VAR: ""})
        sort = directions.get(order, "")
        found.append({"name": name, "label": label, "url": target, "sort": sort})
    return found


def task_page(admin: DatabaseAdmin[Any], request: HttpRequest, task_path: str) -> TemplateResponse:
    """Return the page for a user who may view statistics."""
    task = known_tasks().get(task_path)
    site, alias = admin.admin_site, admin.database
    span = charts.chosen_span(request, alias)
    url = partial(page_url, site, request)
    try:
        of_span = charts.span_charts(series(alias, span, task=task_path))
        drawn = charts.with_deploys(depth_series(alias, span), of_span)
        found = breakdown(alias, span, "task", task=task_path)
        tiles = charts.rate_facts(found[0]) if found else [Fact(_("Attempts"), _("none in this time"))]
    except TimeLimitReached:
        drawn, tiles = [], [Fact(_("Figures"), _("The statistics could not be read in time."))]
    shows_failures = url(Job, "failures")
    return console_page(
        admin,
        request,
        "admin/django_pgqueue/task.html",
        task_path,
        pgqueue_paused=paused(site, request, alias),
        media=charts.MEDIA + assets("failures"),
        path=task_path,
        name=breakable(task_path),
        is_known=task is not None,
        summary=(task.func.__doc__ or "").strip().partition("\n")[0] if task is not None else "",
        tiles=tiles,
        charts=drawn,
        times=charts.span_filter(request),
        facts=list(_facts(alias, url, task_path, task)),
        policy=policy(task) if task is not None else [],
        failures=failure_block(site.get_model_admin(Job), span, task_path) if shows_failures else None,
        schedules=_schedules(alias, url, task_path),
        callers=_callers(admin, request, task_path, task),
        links=list(_links(url, task_path)),
        pause=pause_button(url, "task", task_path),
    )


def _facts(alias: str, url: partial[str], path: str, task: Task[..., Any] | None) -> Iterator[Fact]:
    """Yield its source, and the pauses and the limits that apply to its jobs."""
    if task is not None:
        yield Fact(_("Source"), format_html("<code>{}</code>", source_place(task)))
    queue = task.queue_name if task is not None else ""
    targets = (
        Q(kind=Pause.Kind.TASK, name=path) | Q(kind=Pause.Kind.ALL) | Q(kind=Pause.Kind.QUEUE, name=queue)
    )
    for pause in Pause.objects.using(alias).filter(IN_FORCE & targets).order_by("kind"):
        what = _("this task") if pause.kind == Pause.Kind.TASK else target(pause)
        text = format_html("{}: {}", what, details(pause))
        yield Fact(_("Paused"), linked(url(Pause, "change", pause.pk), text))
    names = {path, "*", f"queue:{queue}"}
    if task is not None:
        names |= {limit_name(task) or path}
    yield from limit_facts(alias, url, names)


def limit_facts(alias: str, url: partial[str], names: Iterable[str]) -> Iterator[Fact]:
    """Yield the limits with these names, and their numbers in force. ``url``: that of a page for the user."""
    for limit in Limit.objects.using(alias).filter(pk__in=names).order_by("-pk"):
        text = f"{limit.pk}: {limit_words(limit) or '-'}"
        yield Fact(_("Limit"), linked(url(Limit, "change", limit.pk), text))


def limit_words(limit: Limit, running: int | None = None) -> str:
    """Return how many jobs may run at once, and the rate. ``running``: how many of them run now."""
    parts = []
    if limit.concurrency is not None:
        values = {"running": formatting.number(running or 0), "allowed": formatting.number(limit.concurrency)}
        some = _("%(running)s of %(allowed)s run") % values
        parts.append(_at_once(limit.concurrency) if running is None else some)
    if limit.rate is not None and limit.per is not None:
        parts.append(_at_most(limit.rate, limit.per))
    return ", ".join(parts)


def _at_once(count: int) -> str:
    return _("at most %(count)s at once") % {"count": formatting.number(count)}


def _at_most(count: int, per: timedelta) -> str:
    return _("at most %(rate)s") % {"rate": formatting.rate(count, per)}


def _schedules(alias: str, url: partial[str], path: str) -> list[dict[str, Any]] | None:
    """Return the schedules that enqueue it; None for a user who may not view schedules."""
    if not url(Schedule, "changelist"):
        return None
    rows = words.with_clock(Schedule.objects.using(alias).filter(task_path=path).order_by("name"))
    return [
        {
            "name": breakable(schedule.pk),
            "url": url(Schedule, "change", schedule.pk),
            "timing": words.timing(schedule),
            "state": state_badge(schedule),
            "next": next_run(schedule)[0],
        }
        for schedule in rows[:MOST_SCHEDULES]
    ]


def _callers(
    admin: DatabaseAdmin[Any], request: HttpRequest, path: str, task: Task[..., Any] | None
) -> dict[str, Any]:
    """Return what enqueues it, as far as that is known."""
    try:
        found, is_slow = callers(admin.database, path), False
    except TimeLimitReached:
        found, is_slow = Callers(), True
    parents = [
        {"name": breakable(each), "url": task_url(admin.admin_site, request, each)} for each in found.parents
    ]
    payload = task.payload._meta.label if task is not None and task.payload is not None else ""
    return {"found": found, "is_slow": is_slow, "payload": payload, "parents": parents}


def _links(url: partial[str], path: str) -> Iterator[dict[str, Any]]:
    """Yield the links to its jobs by status, and to its failures."""
    if jobs := url(Job, "changelist"):
        for status in Status:
            url_of_jobs = with_query(jobs, task=path, status=status.value)
            yield {"label": display.status_badge(status), "url": url_of_jobs}
    if failures := with_query(url(Job, "failures"), task=path):
        yield {"label": _("Failures by group"), "url": failures}


def policy(task: Task[..., Any]) -> list[Fact]:
    """Return the options of a task, in the order in which they matter in the life of a job."""
    in_force, settings = task.policy(), conf.current()
    attempts, timeout = formatting.number(in_force.max_attempts), _seconds(in_force.timeout)
    priority = _("%(queue)s, priority %(priority)d") % {"queue": task.queue_name, "priority": task.priority}
    backoff = _("%(base)s, doubled up to %(ceiling)s, unless the queue has its own") % {
        "base": formatting.span(settings.backoff_base),
        "ceiling": formatting.span(settings.backoff_ceiling),
    }
    setting = _("%(value)s (the setting %(setting)s)")
    crashes = ngettext(
        "it runs again, and fails after %(count)d crash",
        "it runs again, and fails after %(count)d crashes",
        settings.crash_limit,
    )
    # The name of the option, its value, what it is if it is None, and the words for others.
    options: tuple[tuple[str, Any, str, Callable[[Any], str]], ...] = (
        (_("Queue"), task.priority or None, task.queue_name, lambda _priority: priority),
        (_("Calls"), task.payload, _("with arguments"),
         lambda model: _("the rows of %(model)s") % {"model": model._meta.label}),
        (_("Unique"), task.unique, _("no, every call is a job"), _unique),
        (_("Concurrency"), task.concurrency, _("any number at once"), _limit),
        (_("Rate"), task.rate_limit, _("any number of starts"), _limit),
        (_("Group"), task.group, _("none"), _key),
        (_("Attempts"), task.max_attempts, setting % {"value": attempts, "setting": "MAX_ATTEMPTS"},
         formatting.number),
        (_("Wait before a retry"), task.backoff, backoff, _backoff),
        (_("Retried after"), task.retry_on, _("any exception"), _names),
        (_("Fails at once after"), task.fail_on, _("no exception"), _names),
        (_("Timeout"), task.timeout, setting % {"value": timeout, "setting": "TIMEOUT"}, _seconds),
        (_("Expires"), task.expires_after, _("never"),
         lambda after: _("if it has not started after %(period)s") % {"period": formatting.exact(after)}),
        (_("If its worker is lost"), None if task.on_lost == "rerun" else task.on_lost,
         crashes % {"count": settings.crash_limit}, lambda _fail: _("it fails")),
        (_("Runs"), task if task.atomic or task.takes_context else None, _runs(task), _runs),
        (_("Logs"), task.capture_logs, _("as CAPTURE_LOGS says"), _logs),
        (_("Database"), task.database, _("that of its backend"), str),
    )  # fmt: skip
    return [
        Fact(label, default if value is None else words(value), value is None)
        for label, value, default, words in options
    ]


def _seconds(count: float | None) -> str:
    return _("none") if count is None else formatting.span(count)


def _unique(unique: Unique) -> str:
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
    return ", ".join([how_long, by, again[unique.on_conflict]])


def _limit(limit: Concurrency | RateLimit) -> str:
    """Return how many may run or start, for whose jobs, and what happens to others."""
    parts = []
    if isinstance(limit, Concurrency):
        parts.append(_at_once(limit.limit))
    else:
        parts.append(_at_most(limit.limit, limit.per))
        if limit.burst > 1:
            burst = {"count": formatting.number(limit.burst)}
            parts.append(_("up to %(count)s at once after a quiet time") % burst)
    if limit.key is not None:
        parts.append(_("for each %(key)s") % {"key": _key(limit.key)})
    if limit.name is not None:
        parts.append(_("limit %(name)s") % {"name": limit.name})
    if isinstance(limit, Concurrency):
        others = {
            "wait": _("others wait"),
            "cancel_new": _("others are cancelled"),
            "cancel_old": _("a new one cancels older ones"),
        }
        parts.append(others[limit.on_full])
    return ", ".join(parts)


def _backoff(backoff: Any) -> str:
    """Return the waits; they are in seconds, since a task keeps no timedelta."""
    if callable(backoff):
        return _("%(function)s decides") % {"function": _key(backoff)}
    if isinstance(backoff, (int, float)):
        return formatting.span(backoff)
    return _("%(waits)s; the last one repeats") % {"waits": ", ".join(map(formatting.span, backoff))}


def _runs(task: Task[..., Any]) -> str:
    parts = [_("on the event loop") if iscoroutinefunction(task.func) else _("on a thread")]
    if task.atomic:
        parts.append(_("in one transaction with its finish"))
    if task.takes_context:
        parts.append(_("takes the context"))
    return ", ".join(parts)


def _logs(level: bool | str) -> str:
    if isinstance(level, str):
        return _("are kept from %(level)s on") % {"level": level}
    return _("are kept") if level else _("are not kept")


def _key(key: Any) -> str:
    """Return the name of an argument, several of them, or a callable."""
    if callable(key):
        return f"{getattr(key, '__qualname__', None) or type(key).__qualname__}()"
    return key if isinstance(key, str) else ", ".join(map(str, key))


def _names(types: tuple[type[BaseException], ...]) -> str:
    return ", ".join(each.__qualname__ for each in types)
