"""Statistics by minute, queue and task, read-only; above the list, a table of the last hour by task."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.utils.text import format_lazy
from django.utils.translation import gettext_lazy as _

from ..models import JobStat
from . import display
from .base import ReadOnlyAdmin
from .changelist import KeysetChangeList
from .filters import MinuteFilter, QueueFilter, TaskFilter
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
    """Return fields that show the percentiles of a histogram."""

    def field(share: float) -> Callable[[Any, JobStat], str]:
        @admin.display(description=format_lazy("{} p{}", title, round(share * 100)))
        def show(self: Any, row: JobStat) -> str:
            return percentile_text(getattr(row, histogram), share) or str(self.get_empty_value_display())

        return show

    return [field(share) for share in SHARES]


class JobStatAdmin(ReadOnlyAdmin[JobStat]):
    """Shows the number of jobs for each outcome, and how long they waited and ran."""

    list_display = (
        "when", "queue_name", "task_path", "done", "failed", "retried", "cancelled",
        "wait_50", "wait_95", "wait_99", "run_50", "run_95", "run_99",
    )  # fmt: skip
    list_filter = (QueueFilter, TaskFilter, MinuteFilter)
    sortable_by = ()
    fieldsets = (
        (None, {"fields": ("when", "queue_name", "task_path", ("done", "failed", "retried", "cancelled"))}),
        (_("Waited, from due to started"), {"fields": (("mean_wait", "wait_50", "wait_95", "wait_99"),)}),
        (_("Ran, from started to ended"), {"fields": (("mean_run", "run_50", "run_95", "run_99"),)}),
    )
    readonly_fields = (*list_display, "mean_wait", "mean_run")

    wait_50, wait_95, wait_99 = _percentiles("wait_histogram", _("waited"))
    run_50, run_95, run_99 = _percentiles("run_histogram", _("ran"))

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
