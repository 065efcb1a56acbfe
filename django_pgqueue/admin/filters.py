"""Filters of the lists. Their choices are fixed or come from ``names``, so that none of them reads the
history.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.db.models import Value
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

from ..models.job import Status
from . import names
from .job_texts import breakable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from django.db.models import QuerySet
    from django.http import HttpRequest

__all__ = [
    "AS_OF",
    "FinishedFilter",
    "QueueFilter",
    "StatusFilter",
    "TaskFilter",
    "clock",
    "on_shelves",
]

AS_OF = "pgqueue_as_of"  # the attribute of a request for a list as it was at a time
LIVE_SHELF, KEPT_SHELF = 0, 9
MOST_CHOICES = 50
PERIODS = {
    "hour": (timedelta(hours=1), _("last hour")),
    "day": (timedelta(days=1), _("last 24 hours")),
    "week": (timedelta(days=7), _("last 7 days")),
}


def on_shelves(status: str, jobs: QuerySet[Any]) -> QuerySet[Any]:
    """Limit ``jobs`` to the shelves that contain jobs with this status. The plan leaves out the other shelves
    and does not lock them.
    """
    if status not in Status.values:
        return jobs
    if not Status(status).is_terminal:
        return jobs.filter(shelf=LIVE_SHELF)
    if status == Status.FAILED:
        return jobs.filter(shelf=KEPT_SHELF)
    return jobs.filter(shelf__gt=LIVE_SHELF)


def clock(request: HttpRequest) -> Any:
    """Return the time from which a list counts back: now, or the time of a count that was confirmed."""
    as_of = getattr(request, AS_OF, None)
    return Now() if as_of is None else Value(as_of)


class StatusFilter(admin.SimpleListFilter):
    """Filter by the status of the job."""

    title = _("status")
    parameter_name = "status"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Any:
        """Return all states, even if there are no such jobs."""
        return Status.choices

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Return the jobs with the chosen status."""
        status = self.value() if self.value() in Status.values else None
        return on_shelves(status, queryset).filter(status=status) if status else queryset


class _NameFilter(admin.SimpleListFilter):
    """Filter by a column with names. The choices are the names in use, up to a limit, and the chosen one."""

    column: str

    def __init__(self, request: HttpRequest, params: dict[str, Any], *args: Any) -> None:
        given = params.get(self.parameter_name or "")
        super().__init__(request, params, *args)
        if given and "\0" in given[-1]:  # PostgreSQL would refuse the statement
            self.used_parameters.clear()
        chosen = self.value()
        if chosen and chosen not in {value for value, _label in self.lookup_choices}:
            self.lookup_choices.append((chosen, breakable(chosen)))

    def _names(self, alias: str) -> list[str]:
        raise NotImplementedError

    def lookups(self, request: HttpRequest, model_admin: Any) -> Iterable[tuple[str, str]]:
        """Return the names in use."""
        return [(name, breakable(name)) for name in self._names(model_admin.database)[:MOST_CHOICES]]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Return the rows with the chosen name."""
        return queryset.filter(**{self.column: self.value()}) if self.value() else queryset


class QueueFilter(_NameFilter):
    """Filter by queue."""

    title = _("queue")
    parameter_name = "queue"
    column = "queue_name"

    def _names(self, alias: str) -> list[str]:
        return names.queue_names(alias)


class TaskFilter(_NameFilter):
    """Filter by task."""

    title = _("task")
    parameter_name = "task"
    column = "task_path"

    def _names(self, alias: str) -> list[str]:
        return names.task_paths(alias)


class _PeriodFilter(admin.SimpleListFilter):
    """Filter by a recent time, on the clock of the database."""

    column: str
    periods = tuple(PERIODS)

    def lookups(self, request: HttpRequest, model_admin: Any) -> Any:
        """Return the periods."""
        return [(key, PERIODS[key][1]) for key in self.periods]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Return the rows of the chosen period."""
        period = PERIODS.get(self.value() or "")
        return queryset.filter(**{f"{self.column}__gte": clock(request) - period[0]}) if period else queryset


class FinishedFilter(_PeriodFilter):
    """Filter by the time when the job was over."""

    title = _("finished")
    parameter_name = "finished"
    column = "finished_at"

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Return the jobs that were over in the chosen period, without reading live jobs."""
        if self.value() in PERIODS:
            queryset = queryset.filter(shelf__gt=LIVE_SHELF)
        return super().queryset(request, queryset)
