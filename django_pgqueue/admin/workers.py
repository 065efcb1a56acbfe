"""Workers: the processes that run jobs. They can be asked to end (``drain``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.contrib.admin.views.main import ChangeList
from django.db.models import DurationField, ExpressionWrapper, F
from django.db.models.functions import Now
from django.urls import reverse
from django.utils.html import format_html
from django.utils.translation import gettext_lazy as _

from ..models import Job, LiveJob, Worker
from ..models.job import Status
from ..vitals import Vital, busy_text, queues_text, vital, with_vitals
from . import display
from .drain import WorkerActions
from .fleet import Fleet, state_badge
from .job_texts import breakable
from .links import page_url

if TYPE_CHECKING:
    from django.db.models import QuerySet
    from django.http import HttpRequest, HttpResponse

__all__ = ["WorkerAdmin"]

MOST_JOBS = 100  # on the page of a worker


class WorkerChangeList(ChangeList):
    """The list, with a warning above it if jobs are waiting and no worker claims them."""

    model_admin: Any
    trouble = ""

    def get_results(self, request: HttpRequest) -> None:
        """Read the page, and set the warning. Jobs are queried only if no worker claims them."""
        super().get_results(request)
        alias = self.model_admin.database
        trouble = Fleet(alias).trouble
        if trouble and LiveJob.objects.using(alias).exists():  # type: ignore[attr-defined]
            self.trouble = trouble


class WorkerAdmin(WorkerActions):
    """Shows the workers, their queues, and whether they are alive, and can ask them to end."""

    list_display = ("name", "state_now", "heartbeat", "all_queues", "busy_of", "started", "version")
    ordering = ("host", "pid")
    sortable_by = ()
    search_fields = ("host",)
    fieldsets = (
        (
            None,
            {"fields": (("state_now", "heartbeat"), ("all_queues", "busy_of"), ("started", "version"))},
        ),
        (_("In the database"), {"fields": ("id", "supervisor"), "classes": ("collapse",)}),
    )
    readonly_fields = (
        "state_now",
        "heartbeat",
        "all_queues",
        "busy_of",
        "started",
        "version",
        "id",
        "supervisor",
    )

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[WorkerChangeList]:
        """Return the list with the warning."""
        return WorkerChangeList

    def get_queryset(self, request: HttpRequest) -> QuerySet[Worker]:
        """Return the workers with the age of their heartbeats and the number of their running jobs."""
        return with_vitals(super().get_queryset(request))

    def render_change_form(
        self,
        request: HttpRequest,
        context: dict[str, Any],
        add: bool = False,
        change: bool = False,
        form_url: str = "",
        obj: Worker | None = None,
    ) -> HttpResponse:
        """Add the jobs of the worker, for users who may view jobs, and the buttons."""
        if obj is not None:
            context["pgqueue_buttons"] = self.drain_buttons(request, obj)
        if obj is not None and page_url(self.admin_site, request, Job, "changelist"):
            jobs = list(_running_jobs(self.database, obj)[: MOST_JOBS + 1])
            context["pgqueue_jobs"] = [self._job_row(job, obj) for job in jobs[:MOST_JOBS]]
            context["pgqueue_more_jobs"] = len(jobs) > MOST_JOBS
            context["pgqueue_shows_jobs"] = True
        return super().render_change_form(request, context, add, change, form_url, obj)

    def _job_row(self, job: Any, worker: Worker) -> dict[str, Any]:
        name = f"admin:{Job._meta.app_label}_{Job._meta.model_name}_change"
        return {
            "job": job,
            "task": breakable(job.task_path),
            "badge": display.status_badge(Status.RUNNING),
            "url": reverse(name, args=[job.pk], current_app=self.admin_site.name),
            "elapsed": display.period(job.elapsed),
            "deadline": display.time(job.deadline),
            "lost": vital(worker) == Vital.DEAD,
        }

    @admin.display(description=_("worker"))
    def name(self, worker: Worker) -> str:
        """The host and the process."""
        return str(worker)

    @admin.display(description=_("queues"))
    def all_queues(self, worker: Worker) -> str:
        """The queues that it serves."""
        return queues_text(worker)

    @admin.display(description=_("running jobs"))
    def busy_of(self, worker: Any) -> str:
        """How many jobs it runs, of how many it can run at the same time."""
        return busy_text(worker)

    @admin.display(description=_("state"))
    def state_now(self, worker: Any) -> str:
        """Its state according to its last heartbeat, not the state in its row."""
        return state_badge(worker)

    @admin.display(description=_("last heartbeat"))
    def heartbeat(self, worker: Any) -> str:
        """The time since the last heartbeat."""
        text = str(_("%(period)s ago") % {"period": display.period(worker.age)})
        alarm = vital(worker) in {Vital.SILENT, Vital.DEAD}
        return format_html('<strong class="pgqueue-alarm">{}</strong>', text) if alarm else text

    @admin.display(description=_("started"))
    def started(self, worker: Worker) -> str:
        """When the process started."""
        return display.time(worker.started_at)


def _running_jobs(alias: str, worker: Worker) -> QuerySet[Any]:
    """Return the jobs that a worker has claimed, the longest running first, without their arguments."""
    elapsed = ExpressionWrapper(Now() - F("last_attempted_at"), output_field=DurationField())
    jobs = LiveJob.objects.using(alias).filter(status="running", worker=worker.pk)  # type: ignore[attr-defined]
    columns = ("id", "task_path", "queue_name", "deadline", "cancel_requested_at")
    rows: QuerySet[Any] = jobs.only(*columns).annotate(elapsed=elapsed).order_by("last_attempted_at", "pk")
    return rows
