"""Jobs: a list that stays fast with a long history, and a page for each job."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.db.models import Case, OuterRef, QuerySet, Subquery, TextField, Value, When
from django.db.models.fields.json import KeyTextTransform, KeyTransform
from django.db.models.functions import Cast, Concat, Left, Now
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern
from django.utils.translation import gettext_lazy as _

from ...models import Job, Worker
from ...models.job import Status
from ...tasks.links import public_id
from ..ask import RowActions, held, listed
from ..bulk import task as bulk
from ..bulk.actions import ACTIONS, affected, bounds, extendable, permitted
from ..bulk.confirm import act_here, act_on_many
from ..display import MOST_OF_CALL
from ..failures import FailurePages
from ..job_page.page import JobPage
from ..lists import NamesInUse, within_span
from ..overview import overview
from ..shards import is_of_all
from ..workflow import WorkflowPages
from .fields import with_clock
from .filters import FILTERS, claimable, clock, on_shelves
from .progress import PROGRESS_COLUMNS, progress_view
from .search import HELD, HELP, INDEXED, MEANING, JobChangeList, meaning_of, search

_IN_LIST = (
    "id", "task_path", "queue_name", "status", "priority", "attempts", "forgiven_attempts", "max_attempts",
    "run_after", "enqueued_at", "started_at", "last_attempted_at", "finished_at", "duration", "worker",
    "waiting_reason", "cancel_requested_at", *PROGRESS_COLUMNS,
)  # fmt: skip

#: ``str()`` of a worker.
_TEXT = TextField()
_PID = Concat(Value(":", _TEXT), Cast("pid", _TEXT))
_NAME = Concat(Cast("host", _TEXT), Case(When(pid__gt=0, then=_PID), default=Value("", _TEXT)))

_ON_PAGE = (
    ("state_now", "queue", "priority"), "progress", "why", "limits", "times", "arguments",
    "keyword_arguments", "noted", "unique", "group_key", "tenant", "carried", "outcome",
)  # fmt: skip
_OF_ATTEMPTS = ("tries", "by_worker", "crash_count", "timeout", "on_lost", "fingerprint")


class JobAdmin(FailurePages, WorkflowPages[Job], RowActions[Job], JobPage):
    """Shows jobs, and can retry them, run them now, edit them while they wait, or cancel them."""

    class Media:
        css = {"all": ["django_pgqueue/job.css"]}
        js = ("django_pgqueue/job.js",)

    change_list = JobChangeList
    pages_of_all_shards = frozenset({"overview", "changelist", "failures", "failure", "failure_mute"})
    reading_pages = frozenset({"changelist", "failures", "failure"})
    purpose = _(
        "There are no jobs yet. A job is a call of a task, which a worker runs. Your code makes "
        "one: enqueue(task, ...)"
    )
    list_display = (
        "id", "task", "call", "state_and_note", "queue_and_priority", "timing", "tries", "worker_name",
    )  # fmt: skip
    list_display_links = ("id", "task")
    list_filter = FILTERS
    search_fields = ("id", "task_path", "args", "kwargs", "errors")
    search_help_text = HELP
    sortable_by = ()
    fieldsets = ((None, {"fields": _ON_PAGE}), (_("Attempts"), {"fields": (_OF_ATTEMPTS,)}))

    actions = ("retry_jobs", "run_now_jobs", "edit_jobs", "extend_jobs", "cancel_jobs")
    row_actions = ACTIONS

    has_retry_permission = held("retry")
    has_rerun_done_permission = held("rerun_done")  # to retry jobs that are done
    has_run_now_permission = held("run_now")
    has_edit_permission = held("edit")
    has_extend_permission = held("extend")
    has_cancel_permission = held("cancel")

    retry_jobs = listed("retry", _("Retry selected %(verbose_name_plural)s"))
    run_now_jobs = listed("run_now", _("Run selected %(verbose_name_plural)s now"))
    edit_jobs = listed("edit", _("Edit selected %(verbose_name_plural)s"))
    extend_jobs = listed("extend", _("Give selected %(verbose_name_plural)s one more hour"))
    cancel_jobs = listed("cancel", _("Cancel selected %(verbose_name_plural)s"))

    def rows_for_list(self, jobs: QuerySet[Job]) -> QuerySet[Job]:
        """Read what the list shows, and only the beginning of the arguments and of the last error."""
        last = KeyTransform("-1", "errors")
        shown: QuerySet[Job] = with_clock(jobs.select_related("live_progress").only(*_IN_LIST)).annotate(
            error_class=KeyTextTransform("class", last),
            error_words=Left(KeyTextTransform("message", last), MOST_OF_CALL),
            args_text=Left(Cast("args", TextField()), MOST_OF_CALL),
            worker_text=Subquery(Worker.objects.filter(pk=OuterRef("worker")).values(name=_NAME)),
            kwargs_text=Left(Cast("kwargs", TextField()), MOST_OF_CALL),
        )
        return shown

    def searched_rows(self, changelist: JobChangeList) -> QuerySet[Job] | None:
        """Return the jobs that these filters read one by one. None if there are no filters, or if an index
        supports them; also None for running jobs, because they are few.

        No index separates jobs that wait for their first attempt from jobs that wait for their next one, so
        the first of these states alone is a filter, too.
        """
        if changelist.meaning in {*INDEXED, "argument", "id"}:
            return None
        jobs: QuerySet[Job] = changelist.root_queryset
        status = changelist.chosen("status")
        due = changelist.chosen("due")
        if status == Status.PENDING or (due and status not in Status.values):
            return claimable(jobs, due, Now())
        if status == Status.RUNNING:
            return None
        chosen = {name.partition("__")[0] for name in changelist.get_filters_params()}
        if chosen & {"id", "pk"}:  # the jobs with certain ids, such as ?id__in=1,2
            return None
        served = {"status", "queue", "finished"} if status == Status.FAILED else set()
        if status in HELD:
            served = {"status", "queue"}
        if tenant := changelist.chosen("tenant"):  # its index has the order of the list
            jobs, served = jobs.filter(tenant=tenant), {"tenant"}
        if not (chosen - served or changelist.query):
            return None
        over = on_shelves(status, jobs)
        if status in HELD:
            over = over.filter(status=status)
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
        full = self.has_view_arguments_permission(request)
        meaning = getattr(request, MEANING, "") or meaning_of(queryset, term, full=full)
        setattr(request, MEANING, meaning)  # an action finds the same jobs again (bulk/task.py)
        period = request.GET.get("finished", "")
        names, now = NamesInUse.of(request, queryset.db), clock(request)
        return search(queryset, term, period, full=full, meaning=meaning, now=now, names=names), False

    @admin.display(description=_("ID"))
    def public_id(self, job: Job) -> str:
        """Show the id with the shard, in a list of all shards."""
        return public_id(job.pk, job._state.db)

    def get_list_display(self, request: HttpRequest) -> Any:
        """Show ids with their shards if the page shows all."""
        shown = super().get_list_display(request)
        if is_of_all(request):
            return ["public_id" if name == "id" else name for name in shown if name != "shards"]
        return shown

    def get_list_display_links(self, request: HttpRequest, list_display: Any) -> Any:
        """Let an id with its shard lead to the job, too."""
        return [*(super().get_list_display_links(request, list_display) or ()), "public_id"]

    def get_urls(self) -> list[URLPattern]:
        """Add the URLs of the overview, and of the progress of running jobs."""
        return [
            self.viewpage("overview/", overview, "overview"),
            self.viewpage("progress/", progress_view, "progress"),
            *super().get_urls(),
        ]

    def ask_or_act(self, request: HttpRequest, name: str, rows: QuerySet[Job]) -> HttpResponse | None:
        """Handle an action of the list."""
        if name == "extend":  # it harms no job
            act_here(self, request, ACTIONS[name], [extendable(rows)])
            return None
        return act_on_many(self, request, name, rows, is_list=True)

    def press(self, request: HttpRequest, name: str, row: Job, rows: QuerySet[Job]) -> HttpResponse | None:
        """Handle a button of the page of a job. An effect with its own permission counts only if the page has
        shown this state: a job that was failed on the page may be done in the meantime.
        """
        if self._is_denied(name, request, row):
            raise PermissionDenied
        action = ACTIONS[name]
        if action.form is not None:
            return act_on_many(self, request, name, rows, is_list=False)
        shown = request.POST.get("status", row.status)
        acting = [effect for effect in permitted(name, self, request) if effect.acts]
        acting = [effect for effect in acting if not effect.reruns or shown in effect.states]
        parts = affected(rows, bounds(rows, across=False), acting) if action.effects else [extendable(rows)]
        if shown != row.status and not action.fits(row):  # another tab has done it already
            parts = []
        by_now = _("No job changed: this job is now %(status)s.") % {"status": row.get_status_display()}
        act_here(self, request, action, parts, refused="" if shown == row.status else str(by_now))
        return None

    def page_context(self, request: HttpRequest, obj: Any) -> dict[str, Any]:
        """Add buttons for the actions that this user may run on the job now."""
        fitting = [name for name in ACTIONS if ACTIONS[name].fits(obj)]
        fitting = [name for name in fitting if not self._is_denied(name, request, obj)]
        if obj.task_path == bulk.run.module_path and obj.status == Status.DONE:  # nothing is left to do
            fitting = [name for name in fitting if name != "retry"]
        return {
            **super().page_context(request, obj),
            "pgqueue_buttons": self.buttons(request, obj, fitting),
            "pgqueue_button_fields": [("status", obj.status)],
        }

    def _is_denied(self, name: str, request: HttpRequest, job: Job) -> bool:
        """Return whether this user may run the action, but not on a job in this state."""
        return any(
            job.status in effect.states and effect.is_denied for effect in permitted(name, self, request)
        )
