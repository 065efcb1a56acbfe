"""Jobs: a list that stays fast with a long history, and a page for each job.

The fields are in ``fields``, the actions in ``buttons``, and the search in ``search``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib.admin.utils import flatten_fieldsets
from django.core.exceptions import PermissionDenied
from django.db.models import TextField
from django.db.models.fields.json import KeyTextTransform, KeyTransform
from django.db.models.functions import Cast, Left, Now
from django.forms import Script
from django.urls import path
from django.utils.translation import gettext_lazy as _

from ...models import Job
from ...models.job import Status
from ..failures.pages import FailurePages
from ..graph.pages import WorkflowPages
from ..job_page.page import JobPage
from ..lists.periods import within_span
from ..overview.page import overview
from .buttons import JobActions
from .filters import (
    LIVE_SHELF,
    EnqueuedFilter,
    FinishedFilter,
    QueueFilter,
    TaskFilter,
    WorkerFilter,
    clock,
    on_shelves,
)
from .progress import COLUMNS as PROGRESS_COLUMNS
from .progress import progress_view, with_progress
from .search import HELP, MEANING, JobChangeList, has_index, meaning_of, search
from .status_filter import StatusFilter
from .texts import MOST_OF_CALL
from .workers import with_clock

if TYPE_CHECKING:
    from django.db.models import QuerySet
    from django.http import HttpRequest, HttpResponse
    from django.urls import URLPattern

__all__ = ["JobAdmin"]

_IN_LIST = (
    "id", "task_path", "queue_name", "status", "priority", "attempts", "forgiven_attempts", "max_attempts",
    "run_after", "enqueued_at", "started_at", "last_attempted_at", "finished_at", "duration", "worker",
    "waiting_reason", "cancel_requested_at", *PROGRESS_COLUMNS,
)  # fmt: skip


class JobAdmin(FailurePages[Job], WorkflowPages[Job], JobActions, JobPage):
    """Shows jobs, and can retry them, run them now, edit them while they wait, or cancel them."""

    class Media:
        css = {"all": ["django_pgqueue/job.css"]}
        js = ("django_pgqueue/job.js", Script("django_pgqueue/rows.js", defer=True))

    list_display = ("id", "task", "call", "state_and_note", "queue_and_priority", "timing")
    list_display_links = ("id", "task")
    list_filter = (StatusFilter, QueueFilter, TaskFilter, WorkerFilter, EnqueuedFilter, FinishedFilter)
    search_fields = ("id", "task_path", "args", "kwargs", "errors")
    search_help_text = HELP
    sortable_by = ()
    fieldsets = (
        (
            None,
            {
                "fields": (
                    ("state_now", "queue", "priority"),
                    "progress",
                    "why",
                    "limits",
                    "times",
                    "arguments",
                    "keyword_arguments",
                    "noted",
                    "unique",
                    "group_key",
                    "carried",
                    "outcome",
                )
            },
        ),
        (
            _("Attempts"),
            {"fields": (("tries", "by_worker", "crash_count", "timeout", "on_lost", "error_fingerprint"),)},
        ),
    )

    def get_readonly_fields(self, request: HttpRequest, obj: Job | None = None) -> list[Any]:
        """Return all fields, including those that a subclass adds."""
        return flatten_fieldsets(self.get_fieldsets(request, obj))

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[JobChangeList]:
        """Return the list that does not count rows."""
        return JobChangeList

    def rows_for_list(self, jobs: QuerySet[Job]) -> QuerySet[Job]:
        """Read what the list shows, and only the beginning of the arguments and of the last error."""
        last = KeyTransform("-1", "errors")
        shown: QuerySet[Job] = with_clock(with_progress(jobs).only(*_IN_LIST)).annotate(
            error_class=KeyTextTransform("class", last),
            error_words=Left(KeyTextTransform("message", last), MOST_OF_CALL),
            args_text=Left(Cast("args", TextField()), MOST_OF_CALL),
            kwargs_text=Left(Cast("kwargs", TextField()), MOST_OF_CALL),
        )
        return shown

    def searched_rows(self, changelist: JobChangeList) -> QuerySet[Job] | None:
        """Return the jobs that these filters read one by one. None if there are no filters, or if an index
        supports them; also None for running jobs, because they are few.

        No index tells jobs that wait for their first attempt from those that wait for their next one, and
        none has all blocked jobs. So one of these states alone is a filter, too.
        """
        if has_index(changelist.root_queryset.db, changelist.query):
            return None
        jobs: QuerySet[Job] = changelist.root_queryset
        status = changelist.chosen("status")
        if changelist.is_live:
            waits = [state for state in Status if state.is_claimable]
            read = waits if status in waits else [*waits, Status.BLOCKED]
            return None if status == Status.RUNNING else jobs.filter(shelf=LIVE_SHELF, status__in=read)
        chosen = set(changelist.get_filters_params())
        served = {"status", "queue", "finished"} if status == Status.FAILED else set()
        if not (chosen - served or changelist.query):
            return None
        over = on_shelves(status, jobs)
        if changelist.order.names[0] == "finished_at":  # its index has the time, too
            over = over.filter(within_span("finished_at", changelist.chosen("finished"), Now()))
        return over

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Job], search_term: str
    ) -> tuple[QuerySet[Job], bool]:
        """Search by id, also in the form of ``TaskResult.id``, by key, or by text."""
        term = search_term.strip()
        if not term:
            return queryset, False
        meaning = getattr(request, MEANING, "") or meaning_of(queryset, term)
        setattr(request, MEANING, meaning)  # an action finds the same jobs again (bulk_order.py)
        period = request.GET.get("finished", "")
        full = self.has_view_arguments_permission(request)
        return search(queryset, term, period, full=full, meaning=meaning, now=clock(request)), False

    def get_urls(self) -> list[URLPattern]:
        """Add the URLs of the overview, and of the progress of running jobs."""
        name = f"{self.opts.app_label}_{self.opts.model_name}"
        overview_page = self.admin_site.admin_view(self.overview_view)
        progress = self.admin_site.admin_view(self.progress_view)
        return [
            path("overview/", overview_page, name=f"{name}_overview"),
            path("progress/", progress, name=f"{name}_progress"),
            *super().get_urls(),
        ]

    def progress_view(self, request: HttpRequest) -> HttpResponse:
        """How far running jobs are, for the script of the pages."""
        return progress_view(self, request)

    def overview_view(self, request: HttpRequest) -> HttpResponse:
        """Depth, age, failures and workers on one page."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        return overview(self, request)
