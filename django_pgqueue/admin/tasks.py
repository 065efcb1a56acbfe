"""Tasks and the database: pages of the model of the statistics, whose permission they need, and the list of
tasks: every task that ran in the span or that this process can find, with its figures.

It is made from the statistics of the span: at most ``MOST_TASKS`` rows, sorted and searched in memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.core.paginator import Paginator
from django.http import HttpRequest
from django.template.response import TemplateResponse
from django.urls import URLPattern
from django.utils.translation import gettext, pgettext_lazy
from django.utils.translation import gettext_lazy as _

from .. import formatting
from ..formatting import throughput
from ..models import JobStat
from ..monitoring.spans import Figures, TimeSpan, breakdown, per_second, percentile_text, trends
from ..postgres.timeout import TimeLimitReached
from ..tasks.registry import known_tasks
from .base import ReadOnlyAdmin
from .charts import address, chosen_span, error_rate, share_text, span_tabs, sparkline
from .console import console_page, task_url
from .database_page import database_page
from .jobs.texts import breakable
from .lists import queue_names
from .paused import paused
from .task_page import task_page

if TYPE_CHECKING:
    from .base import DatabaseAdmin

MOST_TASKS = 1000
PER_PAGE = 50
ORDER_VAR, PAGE_VAR, QUEUE_VAR, SEARCH_VAR = "o", "p", "queue", "q"


@dataclass(slots=True)
class TaskRow:
    """One task."""

    figures: Figures
    is_known: bool
    """Whether this process can find the task."""
    queue: str
    """The queue of its declaration; empty if it is not known."""
    url: str
    trend: Any = ""

    @property
    def path(self) -> str:
        """Its path."""
        return self.figures.task_path

    @property
    def name(self) -> str:
        """Its path, which may break between its words."""
        return breakable(self.path)

    @property
    def cells(self) -> list[str]:
        """The figures in words."""
        figures = self.figures
        if not figures.attempts:
            return [formatting.number(0), *[""] * (len(_COLUMNS) - 2)]
        return [
            throughput(per_second([figures])),
            formatting.number(figures.done),
            formatting.number(figures.failed),
            formatting.number(figures.retried),
            share_text(error_rate(figures)),
            *(percentile_text(figures.wait_histogram, share) for share in (0.5, 0.95)),
            *(percentile_text(figures.run_histogram, share) for share in (0.5, 0.95)),
        ]

    @property
    def is_failing(self) -> bool:
        """Whether attempts failed for good."""
        return self.figures.failed > 0


_COLUMNS: dict[str, tuple[Any, Any]] = {
    "task": (_("task"), lambda row: row.path),
    "rate": (_("rate"), lambda row: row.figures.attempts),
    "done": (pgettext_lazy("number of jobs", "done"), lambda row: row.figures.done),
    "failed": (pgettext_lazy("number of jobs", "failed"), lambda row: row.figures.failed),
    "retried": (pgettext_lazy("number of jobs", "retried"), lambda row: row.figures.retried),
    "errors": (pgettext_lazy("share of the attempts", "errors"), lambda row: error_rate(row.figures) or 0),
    "wait50": ("p50", lambda row: row.figures.waited(0.5) or 0),
    "wait95": ("p95", lambda row: row.figures.waited(0.95) or 0),
    "run50": ("p50", lambda row: row.figures.ran(0.5) or 0),
    "run95": ("p95", lambda row: row.figures.ran(0.95) or 0),
}
DEFAULT_ORDER = "-rate"


class JobStatAdmin(ReadOnlyAdmin[JobStat]):
    """Shows how the tasks do, one of them, and the state of the database. The rows of the model, the
    statistics, have no pages of their own.
    """

    def get_urls(self) -> list[URLPattern]:
        """Return the three pages."""
        return [
            self.viewpage("", task_list, "changelist"),
            self.viewpage("database/", database_page, "database"),
            self.viewpage("task/<path:task_path>/", task_page, "task"),
        ]


def task_list(admin: DatabaseAdmin[Any], request: HttpRequest) -> TemplateResponse:
    """Return the page for a user who may view statistics."""
    span, queue = chosen_span(request), _given(request, QUEUE_VAR)
    rows, is_cut, is_slow = _rows(admin, request, span, queue)
    words = _given(request, SEARCH_VAR).casefold().split()
    found = [row for row in rows if all(word in row.path.casefold() for word in words)]
    order = _given(request, ORDER_VAR) or DEFAULT_ORDER
    if order.removeprefix("-") not in _COLUMNS:
        order = DEFAULT_ORDER
    _sort(found, order)
    shown, pages = _page(request, found)
    _add_trends(admin.database, span, shown)
    return console_page(
        admin,
        request,
        "admin/django_pgqueue/task_list.html",
        gettext("Tasks"),
        pgqueue_paused=paused(admin.admin_site, request, admin.database),
        rows=shown,
        count=len(found),
        most=MOST_TASKS if is_cut else 0,
        is_slow=is_slow,
        columns=_headings(request, order),
        span_tabs=span_tabs(request),
        hidden={name: request.GET[name] for name in ("span", ORDER_VAR) if name in request.GET},
        queue=queue,
        queues=queue_names(admin.database),
        search=_given(request, SEARCH_VAR),
        pages=pages,
    )


def _given(request: HttpRequest, name: str) -> str:
    return request.GET.get(name, "").replace("\0", "").strip()


def _rows(
    admin: DatabaseAdmin[Any], request: HttpRequest, span: TimeSpan, queue: str
) -> tuple[list[TaskRow], bool, bool]:
    """Return the rows, whether there are more, and whether the statistics could not be read in time."""
    known = known_tasks()
    try:
        ran = breakdown(admin.database, span, "task", queue=queue, most=MOST_TASKS)
    except TimeLimitReached:
        ran, is_slow = [], True
    else:
        is_slow = False
    paths = {figures.task_path for figures in ran}
    others = [path for path, task in known.items() if path not in paths and queue in {"", task.queue_name}]
    start = ran[0].start if ran else None
    every = [*ran, *(Figures(start, task_path=path) for path in others)]  # type: ignore[arg-type]
    rows = [
        TaskRow(
            figures,
            figures.task_path in known,
            known[figures.task_path].queue_name if figures.task_path in known else "",
            task_url(admin.admin_site, request, figures.task_path),
        )
        for figures in every
    ]
    return rows, len(ran) == MOST_TASKS, is_slow


def _sort(rows: list[TaskRow], order: str) -> None:
    """Sort by a column, and by name where it is equal. Tasks that did not run come last."""
    key = _COLUMNS[order.removeprefix("-")][1]
    rows.sort(key=lambda row: row.path)
    rows.sort(key=key, reverse=order.startswith("-"))
    if order.removeprefix("-") != "task":
        rows.sort(key=lambda row: not row.figures.attempts)


def _page(request: HttpRequest, rows: list[TaskRow]) -> tuple[list[TaskRow], list[dict[str, Any]]]:
    """Return the rows of the page in the address, and links to all pages if there are several."""
    page = Paginator(rows, PER_PAGE).get_page(_given(request, PAGE_VAR))
    pages = [
        {"number": each, "url": address(request, {PAGE_VAR: each}), "is_current": each == page.number}
        for each in page.paginator.page_range
    ]
    return list(page.object_list), pages if len(pages) > 1 else []


def _headings(request: HttpRequest, order: str) -> list[dict[str, Any]]:
    """Return the headings with links that sort. A second press turns the order around."""
    found = []
    for name, (label, _key) in _COLUMNS.items():
        first = name if name == "task" else f"-{name}"
        other = f"-{name}" if order == name else name
        is_sorted = order.removeprefix("-") == name
        direction = "descending" if order.startswith("-") else "ascending"
        target = address(request, {ORDER_VAR: other if is_sorted else first, PAGE_VAR: None})
        found.append({"name": name, "label": label, "url": target, "sort": direction if is_sorted else ""})
    return found


def _add_trends(alias: str, span: TimeSpan, rows: list[TaskRow]) -> None:
    try:
        found = trends(alias, span, "task", [row.path for row in rows if row.figures.attempts])
    except TimeLimitReached:
        return
    for row in rows:
        if trend := found.get(row.path):
            row.trend = sparkline([d + f for d, f in zip(trend.done, trend.failed, strict=True)])
