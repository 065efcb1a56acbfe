"""Jobs: a list that does not mind a long history, and a page for each job.

How values look is in ``job_fields``, what may be done in ``job_actions``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib.admin.utils import flatten_fieldsets
from django.core.exceptions import PermissionDenied
from django.db.models.fields.json import KeyTextTransform, KeyTransform
from django.db.models.functions import Left
from django.urls import path
from django.utils.translation import gettext_lazy as _

from .. import results
from ..models import Job
from ..models.job import Status
from .changelist import KeysetChangeList
from .filters import FinishedFilter, QueueFilter, StatusFilter, TaskFilter, on_shelves
from .job_actions import JobActions
from .job_fields import JobFields
from .overview import overview

if TYPE_CHECKING:
    from django.db.models import QuerySet
    from django.http import HttpRequest, HttpResponse
    from django.urls import URLPattern

__all__ = ["JobAdmin"]

_IN_LIST = (
    "id", "task_path", "queue_name", "status", "priority", "attempts", "forgiven_attempts", "max_attempts",
    "run_after", "enqueued_at", "finished_at", "waiting_reason", "cancel_requested_at",
)  # fmt: skip


class JobAdmin(JobActions, JobFields):
    """Look at jobs; retry them, run them now, cancel them. Nothing of a job can be edited."""

    list_display = (
        "id", "task_path", "queue_name", "state", "note", "tries", "priority", "due", "enqueued", "finished",
    )  # fmt: skip
    list_display_links = ("id", "task_path")
    list_filter = (StatusFilter, QueueFilter, TaskFilter, FinishedFilter)
    search_fields = ("id", "task_path")
    search_help_text = _("The id of a job, or part of the path of its task.")
    sortable_by = ()
    fieldsets = (
        (None, {"fields": (("task_path", "queue", "state", "priority"), "waiting_reason")}),
        (_("Call"), {"fields": ("arguments", "keyword_arguments", "noted")}),
        (_("Result"), {"fields": ("outcome",)}),
        (
            _("Attempts"),
            {"fields": (("tries", "crash_count", "by_worker"), ("timeout", "on_lost", "error_fingerprint"))},
        ),
        (
            _("Times"),
            {
                "fields": (
                    ("enqueued", "due", "expires"),
                    ("started", "last_attempted", "ends_by"),
                    ("asked_to_stop", "finished", "ran_for"),
                )
            },
        ),
    )

    def get_readonly_fields(self, request: HttpRequest, obj: Job | None = None) -> list[Any]:
        """All of them, whatever a subclass shows or permits."""
        return flatten_fieldsets(self.get_fieldsets(request, obj))

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[KeysetChangeList]:
        """The list without counts."""
        return KeysetChangeList

    def rows_for_list(self, jobs: QuerySet[Job]) -> QuerySet[Job]:
        """What the list shows: no arguments, results and tracebacks, but the words of the last error."""
        last = KeyTransform("-1", "errors")
        words = Left(KeyTextTransform("message", last), 200)
        return jobs.only(*_IN_LIST).annotate(error_class=KeyTextTransform("class", last), error_words=words)

    def searched_rows(self, changelist: KeysetChangeList) -> QuerySet[Job] | None:
        """The jobs that these filters look at one by one. None where nothing is filtered, and for live jobs:
        they are few, and the oldest of them matter most.
        """
        parameters = changelist.get_filters_params()
        status = parameters.get("status", [""])[-1]
        is_live = status in Status.values and not Status(status).is_terminal
        if is_live or not (parameters or changelist.query):
            return None
        jobs: QuerySet[Job] = changelist.root_queryset
        return on_shelves(status, jobs)

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Job], search_term: str
    ) -> tuple[QuerySet[Job], bool]:
        """By id, also as ``TaskResult.id`` has it, or by a part of the task's path."""
        term = search_term.strip()
        try:
            return queryset.filter(pk=results.parse_id(term)[1]), False
        except ValueError:
            return queryset.filter(task_path__icontains=term) if term else queryset, False

    def get_urls(self) -> list[URLPattern]:
        """The overview, beside the other pages."""
        name = f"{self.opts.app_label}_{self.opts.model_name}_overview"
        view = self.admin_site.admin_view(self.overview_view)
        return [path("overview/", view, name=name), *super().get_urls()]

    def overview_view(self, request: HttpRequest) -> HttpResponse:
        """Depth, age, failures and workers on one page."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        return overview(self, request)
