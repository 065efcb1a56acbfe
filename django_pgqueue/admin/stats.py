"""Statistics by minute, queue and task, read-only; above the list, a table of the last hour by task."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.utils.html import format_html, format_html_join
from django.utils.text import format_lazy
from django.utils.translation import gettext_lazy as _

from ..models import JobStat
from . import display
from .base import ReadOnlyAdmin
from .changelist import KeysetChangeList
from .filters import MinuteFilter, QueueFilter, TaskFilter
from .job_texts import breakable
from .last_hour import last_hour
from .percentiles import SHARES, percentile_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from django.db.models import QuerySet
    from django.http import HttpRequest

__all__ = ["JobStatAdmin"]


class StatChangeList(KeysetChangeList):
    """The list, with the figures of the last hour for the chosen queue and task on its first page."""

    last_hour: Any = None

    def get_results(self, request: HttpRequest) -> None:
        """Read the page, and the figures of the last hour."""
        super().get_results(request)
        if self.page_num in {0, 1}:
            chosen = self.get_filters_params()
            queue, task = (chosen.get(name, [""])[-1].replace("\0", "") for name in ("queue", "task"))
            self.last_hour = last_hour(self.model_admin.database, queue, task)


def _percentiles(histogram: str, title: Any) -> list[Callable[[Any, JobStat], str]]:
    """Return fields that show the percentiles of a histogram: one for all of them, and one for each."""

    @admin.display(description=title)
    def show_all(self: Any, row: JobStat) -> str:
        texts = [(_percent(share), percentile_text(getattr(row, histogram), share)) for share in SHARES]
        lines = [(name, text) for name, text in texts if text]
        shown = format_html_join("", '<span class="pgqueue-share">{} {}</span>', lines)
        return shown or str(self.get_empty_value_display())

    def field(share: float) -> Callable[[Any, JobStat], str]:
        @admin.display(description=format_lazy("{} {}", title, _percent(share)))
        def show(self: Any, row: JobStat) -> str:
            return percentile_text(getattr(row, histogram), share) or str(self.get_empty_value_display())

        return show

    return [show_all, *(field(share) for share in SHARES)]


def _counted(count: int, name: Any) -> str:
    """A count and its name, which stay in one line."""
    return f"{display.number(count)}\N{NO-BREAK SPACE}{name}"


def _percent(share: float) -> str:
    return f"p{round(share * 100)}"


class JobStatAdmin(ReadOnlyAdmin[JobStat]):
    """Shows the number of jobs for each outcome, and how long they waited and ran."""

    list_display = ("when", "queue_name", "task", "attempts", "waited", "ran")
    list_filter = (QueueFilter, TaskFilter, MinuteFilter)
    sortable_by = ()
    fieldsets = (
        (None, {"fields": (("when", "queue_name"), "task", ("done", "failed", "retried", "cancelled"))}),
        (_("Waited, from due to started"), {"fields": (("mean_wait", "wait_50", "wait_95", "wait_99"),)}),
        (_("Ran, from started to ended"), {"fields": (("mean_run", "run_50", "run_95", "run_99"),)}),
    )
    readonly_fields = (
        "when", "queue_name", "task", "done", "failed", "retried", "cancelled",
        "mean_wait", "wait_50", "wait_95", "wait_99", "mean_run", "run_50", "run_95", "run_99",
    )  # fmt: skip

    waited, wait_50, wait_95, wait_99 = _percentiles("wait_histogram", _("waited"))
    ran, run_50, run_95, run_99 = _percentiles("run_histogram", _("ran"))

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[StatChangeList]:
        """Return the list that does not count rows."""
        return StatChangeList

    def rows_for_list(self, rows: QuerySet[JobStat]) -> QuerySet[JobStat]:
        """Read all columns, because the histograms are short."""
        return rows

    def searched_rows(self, changelist: KeysetChangeList) -> QuerySet[JobStat] | None:
        """Return the rows that a filter reads one by one."""
        rows: QuerySet[JobStat] = changelist.root_queryset
        return rows if changelist.get_filters_params() else None

    @admin.display(description=_("minute"))
    def when(self, row: JobStat) -> str:
        """The minute."""
        return display.time(row.minute)

    @admin.display(description=_("task"))
    def task(self, row: JobStat) -> str:
        """Return the path of the task, which may break between its words."""
        return breakable(row.task_path)

    @admin.display(description=_("attempts"))
    def attempts(self, row: JobStat) -> str:
        """Return the number of attempts for each outcome, without the outcomes that did not occur."""
        others = [(row.failed, _("failed")), (row.retried, _("retried")), (row.cancelled, _("cancelled"))]
        done = _counted(row.done, _("done"))
        more = ", ".join(_counted(count, name) for count, name in others if count)
        return format_html('{}<span class="pgqueue-more">{}</span>', done, more) if more else done

    @admin.display(description=_("mean"))
    def mean_wait(self, row: JobStat) -> str:
        """The mean time from due to started."""
        return self._mean(row.wait_seconds, row)

    @admin.display(description=_("mean"))
    def mean_run(self, row: JobStat) -> str:
        """The mean time from started to ended."""
        return self._mean(row.run_seconds, row)

    def _mean(self, seconds: float, row: JobStat) -> str:
        attempts = row.done + row.failed + row.retried + row.cancelled
        return display.span(seconds / attempts) if attempts else str(self.get_empty_value_display())
