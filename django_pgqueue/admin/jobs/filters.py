"""Filters of the lists. Their choices are fixed or come from ``lists``, so that none of them reads the
history.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from django.contrib import admin
from django.db.models import QuerySet, Value
from django.db.models.functions import Now
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.translation import gettext_lazy as _

from ...encoding import MAX_BIGINT, whole_number
from ...models.job import Status
from ...models.queue import Worker
from ...monitoring.states import shared_counts
from ..console import hides
from ..lists import PERIODS, is_span, queue_names, read_span, task_paths, within_span
from .texts import breakable, short_name

AS_OF = "pgqueue_as_of"  # the attribute of a request for a list as it was at a time
LIVE_SHELF, KEPT_SHELF = 0, 9
MOST_CHOICES = 50


def on_shelves(status: str, jobs: QuerySet[Any]) -> QuerySet[Any]:
    """Limit ``jobs`` to the shelves that contain jobs with this status. The plan leaves out the others."""
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


class _NameFilter(admin.SimpleListFilter):
    """Filter by a column with names or keys. The choices are those in use, up to a limit, and the chosen."""

    column: str
    names: Callable[[str], list[str]]
    """Returns the names in use in the database with this alias."""
    label: Callable[[str], str] = staticmethod(breakable)

    def __init__(self, request: HttpRequest, params: dict[str, Any], *args: Any) -> None:
        given = params.get(self.parameter_name or "")
        super().__init__(request, params, *args)
        if given and not self._is_valid(given[-1]):
            self.used_parameters.clear()
        chosen = self.value()
        if chosen and chosen not in {value for value, _label in self.lookup_choices}:
            self.lookup_choices.append((chosen, self.label(chosen)))

    def _is_valid(self, text: str) -> bool:
        return "\0" not in text  # PostgreSQL would refuse the statement

    def lookups(self, request: HttpRequest, model_admin: Any) -> Iterable[tuple[str, str]]:
        """Return the names in use."""
        return [(name, breakable(name)) for name in self.names(model_admin.database)[:MOST_CHOICES]]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Return the rows with the chosen name."""
        return queryset.filter(**{self.column: self.value()}) if self.value() else queryset


class QueueFilter(_NameFilter):
    """Filter by queue."""

    title = _("queue")
    parameter_name = "queue"
    column = "queue_name"
    names = staticmethod(lambda alias: queue_names(alias))


class TaskFilter(_NameFilter):
    """Filter by task."""

    title = _("task")
    parameter_name = "task"
    column = "task_path"
    names = staticmethod(lambda alias: task_paths(alias))


class WorkerFilter(_NameFilter):
    """Filter by the worker that runs the job, or was the last one to run it."""

    title = _("worker")
    parameter_name = column = "worker"
    label = staticmethod(lambda key: short_name(int(key)))

    def _is_valid(self, text: str) -> bool:
        return whole_number(text, -MAX_BIGINT - 1) is not None

    def lookups(self, request: HttpRequest, model_admin: Any) -> Iterable[tuple[str, str]]:
        """Return the workers."""
        workers = Worker.objects.using(model_admin.database).order_by("host", "pid", "pk")
        return [(str(worker.pk), str(worker)) for worker in workers[:MOST_CHOICES]]


class _TimeFilter(admin.SimpleListFilter):
    """Filter by a time: by a recent period on the clock of the database, or from one time to another."""

    column: str

    def __init__(self, request: HttpRequest, params: dict[str, Any], *args: Any) -> None:
        super().__init__(request, params, *args)
        chosen = self.value() or ""
        if span := read_span(chosen):
            self.lookup_choices.append((chosen, str(span)))

    def lookups(self, request: HttpRequest, model_admin: Any) -> Any:
        """Return the periods."""
        return [(key, label) for key, (_length, label) in PERIODS.items()]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Return the rows of the chosen span."""
        return queryset.filter(within_span(self.column, self.value() or "", clock(request)))


class EnqueuedFilter(_TimeFilter):
    """Filter by the time when the job was enqueued."""

    title = _("enqueued")
    parameter_name = "enqueued"
    column = "enqueued_at"


class FinishedFilter(_TimeFilter):
    """Filter by the time when the job was over."""

    title = _("finished")
    parameter_name = "finished"
    column = "finished_at"

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Return the jobs that were over in the chosen span, without reading live jobs."""
        if is_span(self.value() or ""):
            queryset = queryset.filter(shelf__gt=LIVE_SHELF)
        return super().queryset(request, queryset)


PAUSE = 5  # seconds until the list is read again


class StatusFilter(admin.SimpleListFilter):
    """Filter by status, with how many jobs are in each.

    The numbers are those of all jobs, and all viewers share them (``monitoring.states``). With another
    filter, with a search, and in a list of which a subclass shows a part only, they would not tell what a
    choice leads to, so they are left out.
    """

    title = _("status")
    parameter_name = "status"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Any:
        """Return all states, even if there are no such jobs."""
        return Status.choices

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Return the jobs with the chosen status."""
        if self.value() not in Status.values:
            return queryset
        return on_shelves(self.value() or "", queryset).filter(status=self.value())

    def choices(self, changelist: Any) -> Iterator[Any]:
        """Return the states, each with the number of its jobs."""
        everything, *states = super().choices(changelist)
        yield everything
        is_whole = set(changelist.get_filters_params()) <= {self.parameter_name} and not changelist.query
        if not is_whole or hides(changelist.root_queryset):
            yield from states
            return
        counts, source = shared_counts(changelist.root_queryset.db), self.request.get_full_path()
        for status, choice in zip(Status.values, states, strict=True):
            shown = format_html(
                '<span class="pgqueue-count" id="pgqueue-count-{}" data-pgqueue-source="{}"'
                ' data-pgqueue-pause="{}">{}</span>',
                status, source, PAUSE, counts.get(status, ""),
            )  # fmt: skip
            yield {**choice, "display": format_html("{} {}", choice["display"], shown)}
