"""Tasks and the database: pages of the model of the statistics, whose permission they need, and the list of
tasks: every task that ran in the span or that this process can find, with its figures.

It is made from the statistics of the span: at most ``MOST_TASKS`` rows, sorted and searched in memory.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

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
from .charts import chosen_span, error_rate, share_text, span_tabs, sparkline
from .console import console_page, paused, task_url
from .database_page import database_page, doctor_page
from .jobs.texts import breakable
from .lists import address, names_filter, queue_names
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
    site, alias, known = admin.admin_site, admin.database, known_tasks()
    span, queue = chosen_span(request), _given(request, QUEUE_VAR)
    rows, is_cut, is_slow = _rows(alias, span, queue)
    words = _given(request, SEARCH_VAR).casefold().split()
    found = [row for row in rows if all(word in row.task_path.casefold() for word in words)]
    order = _given(request, ORDER_VAR)
    order = order if order.removeprefix("-") in _COLUMNS else DEFAULT_ORDER
    _sort(found, order)
    page = Paginator(found, PER_PAGE).get_page(_given(request, PAGE_VAR))
    lines: dict[str, Trend] = {}
    with suppress(TimeLimitReached):
        lines = trends(alias, span, "task", [row.task_path for row in page if row.attempts])
    pages = [
        {"number": each, "url": address(request, {PAGE_VAR: each}), "is_current": each == page.number}
        for each in page.paginator.page_range
    ]
    return console_page(
        admin,
        request,
        "admin/django_pgqueue/task_list.html",
        gettext("Tasks"),
        pgqueue_paused=paused(site, request, alias),
        rows=[
            {
                "figures": row,
                "name": breakable(row.task_path),
                "url": task_url(site, request, row.task_path),
                "is_known": row.task_path in known,
                "errors": share_text(error_rate(row)),
                "times": [
                    percentile_text(histogram, share)
                    for histogram in (row.wait_histogram, row.run_histogram)
                    for share in (0.5, 0.95)
                ],
                "trend": sparkline(lines[row.task_path].attempts) if row.task_path in lines else "",
            }
            for row in page
        ],
        count=len(found),
        most=MOST_TASKS if is_cut else 0,
        is_slow=is_slow,
        columns=_headings(request, order),
        filters=[
            names_filter(request, gettext("queue"), QUEUE_VAR, queue_names(alias)),
            {"title": gettext("time"), "choices": span_tabs(request)},
        ],
        hidden={name: request.GET[name] for name in ("span", QUEUE_VAR, ORDER_VAR) if name in request.GET},
        search=_given(request, SEARCH_VAR),
        pages=pages if len(pages) > 1 else [],
    )


def _given(request: HttpRequest, name: str) -> str:
    return request.GET.get(name, "").strip()


def _rows(alias: str, span: TimeSpan, queue: str) -> tuple[list[Figures], bool, bool]:
    """Return tasks that ran or are found here; whether there are more; whether statistics were too slow."""
    try:
        ran, is_slow = breakdown(alias, span, "task", queue=queue, most=MOST_TASKS), False
    except TimeLimitReached:
        ran, is_slow = [], True
    paths = {figures.task_path for figures in ran}
    start: Any = ran[0].start if ran else None
    others = [
        Figures(start, task_path=path)
        for path, task in known_tasks().items()
        if path not in paths and queue in {"", task.queue_name}
    ]
    return [*ran, *others], len(ran) == MOST_TASKS, is_slow


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
