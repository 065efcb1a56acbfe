"""Statistics by minute, queue and task, to look at."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.utils.translation import gettext_lazy as _

from ..models import JobStat
from . import display
from .base import ReadOnlyAdmin
from .changelist import KeysetChangeList
from .filters import MinuteFilter, QueueFilter, TaskFilter

if TYPE_CHECKING:
    from django.db.models import QuerySet
    from django.http import HttpRequest

__all__ = ["JobStatAdmin"]


class JobStatAdmin(ReadOnlyAdmin[JobStat]):
    """How many jobs ended how, how long they waited and ran."""

    list_display = (
        "when", "queue_name", "task_path", "done", "failed", "retried", "cancelled", "mean_wait", "mean_run",
    )  # fmt: skip
    list_filter = (QueueFilter, TaskFilter, MinuteFilter)
    sortable_by = ()
    fields = list_display
    readonly_fields = fields

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[KeysetChangeList]:
        """The list without counts."""
        return KeysetChangeList

    def rows_for_list(self, rows: QuerySet[JobStat]) -> QuerySet[JobStat]:
        """All but the histograms."""
        return rows.defer("wait_histogram", "run_histogram")

    def searched_rows(self, changelist: KeysetChangeList) -> QuerySet[JobStat] | None:
        """The rows that a filter looks at one by one."""
        rows: QuerySet[JobStat] = changelist.root_queryset
        return rows if changelist.get_filters_params() else None

    @admin.display(description=_("minute"))
    def when(self, row: JobStat) -> str:
        """The minute."""
        return display.time(row.minute)

    @admin.display(description=_("mean wait"))
    def mean_wait(self, row: JobStat) -> str:
        """From due to started."""
        return _mean(row.wait_seconds, row)

    @admin.display(description=_("mean run"))
    def mean_run(self, row: JobStat) -> str:
        """From started to ended."""
        return _mean(row.run_seconds, row)


def _mean(seconds: float, row: JobStat) -> str:
    attempts = row.done + row.failed + row.retried + row.cancelled
    return str(_("%(milliseconds).1f ms") % {"milliseconds": 1000 * seconds / attempts}) if attempts else ""
