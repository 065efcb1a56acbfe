"""Tasks and the database: pages of the model of the statistics, whose permission they need, and the list of
tasks: every task that ran in the span or that this process can find, with its figures.

It is made from the statistics of the span: at most ``MOST_TASKS`` rows, sorted and searched in memory.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

from django.core.paginator import Paginator
from django.http import HttpRequest
from django.template.response import TemplateResponse
from django.urls import URLPattern
from django.utils.translation import gettext, pgettext_lazy
from django.utils.translation import gettext_lazy as _

from ..models import JobStat
from ..monitoring.spans import Figures, TimeSpan, Trend, breakdown, percentile_text, trends
from ..postgres.timeout import TimeLimitReached
from ..tasks.registry import known_tasks
from .base import DatabaseAdmin, ReadOnlyAdmin
from .charts import chosen_span, error_rate, share_text, span_filter, sparkline
from .console import Paused, console_page, of_row, paused, task_url
from .database_page import database_page, doctor_page
from .jobs.texts import breakable
from .lists import address, names_filter, queue_names
from .shard_lists import added_up, by_name, named, over_shards, said_without, shard_links, union
from .shards import is_of_all
from .task_page import task_page

MOST_TASKS = 1000
PER_PAGE = 50
ORDER_VAR, PAGE_VAR, QUEUE_VAR, SEARCH_VAR = "o", "p", "queue", "q"
_COLUMNS: dict[str, tuple[Any, Any]] = {
    "task": (_("task"), lambda row: row.task_path),
    "rate": (_("rate"), lambda row: row.attempts),
    "done": (pgettext_lazy("number of jobs", "done"), lambda row: row.done),
    "failed": (pgettext_lazy("number of jobs", "failed"), lambda row: row.failed),
    "retried": (pgettext_lazy("number of jobs", "retried"), lambda row: row.retried),
    "errors": (pgettext_lazy("share of the attempts", "errors"), lambda row: error_rate(row) or 0),
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


class _TasksThere(NamedTuple):
    """What a shard knows for the list."""

    span: TimeSpan
    ran: list[Figures] | None  # None: not in time
    queues: list[str]
    paused: str


def task_list(admin: DatabaseAdmin[Any], request: HttpRequest) -> TemplateResponse:
    """Return the page for a user who may view statistics."""
    site, known, queue = admin.admin_site, known_tasks(), _given(request, QUEUE_VAR)
    is_all = is_of_all(request)

    def read(alias: str) -> _TasksThere:
        span, ran = chosen_span(request, alias), None
        try:
            ran = breakdown(alias, span, "task", queue=queue, most=MOST_TASKS)
        except TimeLimitReached:
            if is_all:  # like a shard that does not answer
                raise
        with of_row(alias if is_all else ""):
            return _TasksThere(span, ran, queue_names(alias), paused(site, request, alias).everything)

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
        return sparkline(added_up([each[row.task_path] for each in lines]).attempts)

    banners = {alias: each.paused for alias, each in given.items()}
    pages = [
        {"number": each, "url": address(request, {PAGE_VAR: each}), "is_current": each == page.number}
        for each in page.paginator.page_range
    ]
    return console_page(
        admin,
        request,
        "admin/django_pgqueue/task_list.html",
        gettext("Tasks"),
        pgqueue_paused=Paused(everything=named(banners) if is_all else next(iter(banners.values()), "")),
        unanswered=said_without(answers),
        rows=[
            {
                "figures": row,
                "name": breakable(row.task_path),
                "url": "" if is_all else task_url(site, request, row.task_path),
                "shards": links_to(row.task_path) if is_all else "",
                "is_known": row.task_path in known,
                "errors": share_text(error_rate(row)),
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
            names_filter(request, gettext("queue"), QUEUE_VAR, union(each.queues for each in given.values())),
            span_filter(request),
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
        target = address(request, {ORDER_VAR: second if order == first else first, PAGE_VAR: None})
        sort = directions.get(order, "")
        found.append({"name": name, "label": label, "url": target, "sort": sort})
    return found
