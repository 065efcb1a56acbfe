"""Batches: a list with their numbers as bars, and a page with their failed jobs and what waits for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from django.contrib import admin
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _
from django.utils.translation import pgettext_lazy

from ...models import Job, JobBatch
from ...models.batch import counts_of
from ...models.job import Status
from .. import display
from ..graph.pages import WorkflowPages
from ..job_page.links import children_of, shown_jobs
from ..jobs.filters import on_shelves
from ..jobs.search import BATCH
from ..links import page_url
from ..lists.changelist import KeysetChangeList
from . import fields as batch_fields
from .actions import BatchActions

if TYPE_CHECKING:
    from django.db.models import QuerySet
    from django.http import HttpRequest, HttpResponse

__all__ = ["BatchAdmin"]

MOST_FAILED = 20  # on the page of a batch


class BatchStateFilter(admin.SimpleListFilter):
    """Filter by whether the batch is open or running, or by how it ended."""

    title = _("state")
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Any:
        """Return all states."""
        return [
            ("open", pgettext_lazy("batch", "open")),
            ("running", pgettext_lazy("batch", "running")),
            *JobBatch.Outcome.choices,
        ]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Return the batches in the chosen state."""
        state = self.value()
        if state in JobBatch.Outcome.values:
            return queryset.filter(over_at__isnull=False, outcome=state)
        if state in ("open", "running"):
            return queryset.filter(over_at__isnull=True, is_open=state == "open")
        return queryset


class BatchAdmin(WorkflowPages[JobBatch], BatchActions):
    """Shows batches, and can cancel them and retry their failed jobs."""

    list_display = ("id", "named", "state_now", "numbers", "created", "age")
    list_display_links = ("id", "named")
    list_filter = (BatchStateFilter,)
    search_fields = ("id", "name")
    sortable_by = ()
    fieldsets = ((None, {"fields": (("state_now", "age"), "numbers", ("created", "over"))}),)
    readonly_fields = ("named", "state_now", "numbers", "created", "over", "age")

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[KeysetChangeList]:
        """Return the list that does not count rows."""
        return KeysetChangeList

    def get_queryset(self, request: HttpRequest) -> QuerySet[JobBatch]:
        """Return the batches with the time of the database."""
        return super().get_queryset(request).annotate(now=Now())

    def rows_for_list(self, batches: QuerySet[JobBatch]) -> list[Any]:
        """Read the batches of a page with their numbers."""
        rows: list[Any] = list(batches)
        counts = counts_of(self.database, [row.pk for row in rows])
        for row in rows:
            row.counts = counts[row.pk]
        return rows

    def searched_rows(self, changelist: KeysetChangeList) -> QuerySet[JobBatch] | None:
        """Return the rows that filters read one by one. Those that are not over have an index."""
        chosen = changelist.get_filters_params()
        if changelist.query or chosen.get("state", [""])[-1] in JobBatch.Outcome.values:
            rows: QuerySet[JobBatch] = changelist.root_queryset
            return rows
        return None

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[JobBatch], search_term: str
    ) -> tuple[QuerySet[JobBatch], bool]:
        """Search by id, or by a part of the name."""
        term = search_term.strip().replace("\0", "")
        if term.isdecimal() and len(term) < 19:
            return queryset.filter(pk=int(term)) | queryset.filter(name__icontains=term), False
        return (queryset.filter(name__icontains=term) if term else queryset), False

    def get_object(
        self, request: HttpRequest, object_id: str, from_field: str | None = None
    ) -> JobBatch | None:
        """Return the batch with its numbers."""
        batch: Any = super().get_object(request, object_id, from_field)
        if batch is not None:
            batch.counts = counts_of(self.database, [batch.pk])[batch.pk]
        return batch  # type: ignore[no-any-return]

    def render_change_form(
        self,
        request: HttpRequest,
        context: dict[str, Any],
        add: bool = False,
        change: bool = False,
        form_url: str = "",
        obj: Any = None,
    ) -> HttpResponse:
        """Add the buttons; and for users who may view jobs, those of the batch and those that wait for it."""
        if obj is not None:
            context["pgqueue_heading"] = batch_fields.name(obj)
            context["pgqueue_buttons"] = self.batch_buttons(request, obj, obj.counts)
            if jobs := page_url(self.admin_site, request, Job, "changelist"):
                context["pgqueue_members"] = _member_links(obj, jobs)
                context["pgqueue_tables"] = self._tables(request, obj)
        return super().render_change_form(request, context, add, change, form_url, obj)

    def _tables(self, request: HttpRequest, batch: Any) -> list[dict[str, Any]]:
        tables = []
        if batch.counts.failed:  # a batch may have a million jobs in the other shelves
            failed = on_shelves(Status.FAILED, Job.objects.using(self.database))
            failed = failed.filter(batch_id=batch.pk, status=Status.FAILED).order_by("pk")
            tables.append(shown_jobs(self.admin_site, request, _("Failed jobs"), failed, MOST_FAILED))
        children = children_of(batch.pk, self.database)
        tables.append(shown_jobs(self.admin_site, request, _("Jobs that run after this batch"), children))
        return tables

    @admin.display(description=_("name"))
    def named(self, batch: JobBatch) -> str:
        """The name, with line breaks allowed between its words."""
        return batch_fields.name(batch)

    @admin.display(description=_("state"))
    def state_now(self, batch: JobBatch) -> str:
        """Whether it is open or running, or how it ended."""
        return batch_fields.state(batch)

    @admin.display(description=_("jobs"))
    def numbers(self, batch: Any) -> str:
        """How many jobs are over, as a bar."""
        return batch_fields.bar(batch.counts)

    @admin.display(description=_("created"))
    def created(self, batch: JobBatch) -> str:
        """When it was opened."""
        return display.time(batch.created_at)

    @admin.display(description=_("over"))
    def over(self, batch: JobBatch) -> str:
        """When its last job ended."""
        return display.time(batch.over_at) or str(self.get_empty_value_display())

    @admin.display(description=_("lasts"))
    def age(self, batch: Any) -> str:
        """How long it lasts, or has lasted."""
        return batch_fields.lasted(batch, batch.now)


def _member_links(batch: Any, jobs: str) -> list[dict[str, Any]]:
    """Return links to the lists of its jobs, by what has become of them."""
    counts = batch.counts
    kinds: list[tuple[str, Any, int]] = [("", _("All jobs"), counts.added)]
    kinds += [
        (status.value, status.label, getattr(counts, status.value))
        for status in (Status.DONE, Status.FAILED, Status.CANCELLED)
    ]
    links = []
    for key, label, count in kinds:
        query = {"q": f"{BATCH}{batch.pk}", **({"status": key} if key else {})}
        if count:
            links.append(
                {"label": label, "count": display.number(count), "url": f"{jobs}?{urlencode(query)}"}
            )
    return links
