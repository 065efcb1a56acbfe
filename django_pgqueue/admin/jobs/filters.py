"""Filters of the lists. Their choices are fixed or come from ``lists``, so none reads the history."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

from django.contrib import admin
from django.db.models import Q, QuerySet, Value
from django.db.models.functions import Now
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.translation import gettext_lazy as _

from ...encoding import MAX_BIGINT, whole_number
from ...models.job import Status
from ...models.queue import Worker
from ...monitoring.queues import shared_counts
from ...postgres import fetch_rows, sql_of
from .. import lists
from ..console import hides
from ..display import breakable, short_name
from ..shards import is_of_all

AS_OF = "pgqueue_as_of"  # the attribute of a request for a list as it was at a time
LIVE_SHELF, KEPT_SHELF = 0, 9
MOST_CHOICES = 50
_TENANTS = sql_of(__file__, "tenants")


def on_shelves(status: str, jobs: QuerySet[Any]) -> QuerySet[Any]:
    """Limit ``jobs`` to the shelves that contain jobs with this status. The plan leaves out the others."""
    return jobs.filter(_shelves(Status(status))) if status in Status.values else jobs


def _shelves(status: Status) -> Q:
    if not status.is_terminal:
        return Q(shelf=LIVE_SHELF)
    return Q(shelf=KEPT_SHELF) if status == Status.FAILED else Q(shelf__gt=LIVE_SHELF)


def clock(request: HttpRequest) -> Any:
    """Return the time from which a list counts back: now, or the time of a count that was confirmed."""
    as_of = getattr(request, AS_OF, None)
    return Now() if as_of is None else Value(as_of)


class _ByColumn(admin.SimpleListFilter):
    """Filter by a column."""

    column: str

    @classmethod
    def same_as(cls, asked: dict[str, str]) -> dict[str, str]:
        """Return the changes of an address that names the column, as Django's own filters do."""
        column, parameter = cls.column, str(cls.parameter_name)
        names = [name for name in (column, f"{column}__exact") if name in asked and name != parameter]
        return {**dict.fromkeys(names, ""), parameter: asked[names[0]]} if names else {}


class _Filter(_ByColumn):
    """The choices are those in use, up to a limit, and the chosen."""

    names: Callable[[lists.NamesInUse], list[str]]

    @classmethod
    def of(cls, title: Any, column: str, names: Callable[[lists.NamesInUse], list[str]] | None = None) -> Any:
        """Return the filter by a column. Its parameter is the first word of the name of the column."""
        values = {"title": title, "column": column, "parameter_name": column.partition("_")[0]}
        return type(cls.__name__, (cls,), {**values, "names": staticmethod(names)} if names else values)

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        chosen = self.value()
        if chosen and chosen not in dict(self.lookup_choices):
            if not (label := self.label(chosen)):
                raise lists.no_choice(self)
            self.lookup_choices.append((chosen, label))

    def label(self, chosen: str) -> str:
        """Return how a chosen value is shown; empty if no row can have it."""
        return breakable(chosen)

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        """Return the values in use."""
        names = self.names(lists.NamesInUse.of(request, model_admin.database))
        return [(name, breakable(name)) for name in names[:MOST_CHOICES]]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Return the rows with the chosen value."""
        return queryset.filter(**{self.column: self.value()}) if self.value() else queryset


class WorkerFilter(_Filter):
    """Filter by the worker that runs the job, or was the last one to run it."""

    title = _("worker")
    parameter_name = column = "worker"

    def label(self, chosen: str) -> str:
        """Return the short name of a worker that no longer exists."""
        key = whole_number(chosen, -MAX_BIGINT - 1)
        return "" if key is None else short_name(key)

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        """Return the workers."""
        workers = Worker.objects.using(model_admin.database).order_by("host", "pid", "pk")
        return [(str(worker.pk), str(worker)) for worker in workers[:MOST_CHOICES]]


class SpanFilter(_Filter):
    """Filter by a time: by a recent period on the clock of the database, or from one time to another. The two
    fields of the form are joined to one parameter.
    """

    template = "admin/django_pgqueue/span_filter.html"

    @classmethod
    def same_as(cls, asked: dict[str, str]) -> dict[str, str]:
        """Return the changes of an address with the fields of the form."""
        name = cls.parameter_name
        start, end = (asked.get(f"{name}_{part}") for part in ("from", "to"))
        if start is None and end is None:
            return super().same_as(asked)
        span = f"{start or ''}..{end or ''}" if start or end else ""
        return {f"{name}_from": "", f"{name}_to": "", str(name): span}

    def label(self, chosen: str) -> str:
        """Return the span in words."""
        span, parameter = lists.read_span(chosen), str(self.parameter_name)
        if span is None:
            words = _("“%(value)s” is no time. Write two times, such as 2026-11-23T10:00..2026-11-23T12:00.")
            raise lists.OtherAddress({parameter: ""}, str(words) % {"value": chosen})
        if span.start and span.end and span.start >= span.end:
            raise lists.OtherAddress({parameter: ""}, str(_("“From” must be before “to”.")))
        return str(span)

    @property
    def form(self) -> dict[str, Any]:
        """The form for other times."""
        return lists.span_form(self.request, str(self.parameter_name), self.value() or "")

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        """Return the periods."""
        return [(key, label) for key, (_length, label) in lists.PERIODS.items()]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Return the rows of the chosen span."""
        return queryset.filter(lists.within_span(self.column, self.value() or "", clock(request)))


class FinishedFilter(SpanFilter):
    """Filter by the time when the job finished, without reading live jobs."""

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Return the jobs that finished in the chosen span."""
        return super().queryset(request, queryset.filter(shelf__gt=LIVE_SHELF) if self.value() else queryset)


def claimable(jobs: QuerySet[Any], due: str, moment: Any) -> QuerySet[Any]:
    """Return the jobs that wait for a worker: all, or the ones that are due "now", or "later"."""
    waiting = jobs.filter(shelf=LIVE_SHELF, status__in=[state for state in Status if state.is_claimable])
    bounds = {"now": {"run_after__lte": moment}, "later": {"run_after__gt": moment}}
    return waiting.filter(**bounds.get(due, {}))


class DueFilter(admin.SimpleListFilter):
    """Filter the jobs that wait for a worker, or for their time: ready ones, or scheduled ones."""

    title = _("due")
    parameter_name = "due"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        """Return both."""
        return [("now", _("Now: ready jobs")), ("later", _("Later: scheduled and retrying jobs"))]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Return the jobs that a worker may claim now, or later."""
        return claimable(queryset, self.value() or "", clock(request)) if self.value() else queryset


PAUSE = 5  # seconds until a list or a page is read again


class StatusFilter(_ByColumn, lists.ConditionFilter):
    """Filter by status, with how many jobs are in each.

    The numbers count all jobs, and all viewers share them (``monitoring.queues``). With another
    filter, with a search, and in a list of which a subclass shows a part only, they would not say what a
    choice leads to, so they are left out.
    """

    title = _("status")
    parameter_name = column = "status"
    conditions: ClassVar = {
        status.value: (status.label, _shelves(status) & Q(status=status.value)) for status in Status
    }

    def choices(self, changelist: Any) -> Iterator[Any]:
        """Return the states, each with the number of its jobs."""
        everything, *states = super().choices(changelist)
        yield everything
        is_whole = set(changelist.get_filters_params()) <= {self.parameter_name} and not changelist.query
        if not is_whole or is_of_all(self.request) or hides(changelist.root_queryset):
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


def _tenants(names: lists.NamesInUse) -> list[str]:
    """Return the tenants of live jobs. Without any, there is no filter, unless the address names one."""
    return [row[0] for row in fetch_rows(names.alias, _TENANTS, {"most": MOST_CHOICES})]


FILTERS = (
    StatusFilter,
    DueFilter,
    _Filter.of(_("queue"), "queue_name", lambda names: names.queues),
    _Filter.of(_("task"), "task_path", lambda names: names.tasks),
    _Filter.of(_("tenant"), "tenant", _tenants),
    WorkerFilter,
    SpanFilter.of(_("enqueued"), "enqueued_at"),
    FinishedFilter.of(_("finished"), "finished_at"),
)
