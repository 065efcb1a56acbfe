"""Workers: the processes that run jobs. They can be asked to end (``drain``). What the page of one shows
about its jobs is in ``page``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.contrib.admin.views.main import ChangeList
from django.template.defaultfilters import filesizeformat
from django.utils.html import format_html
from django.utils.translation import gettext_lazy as _

from ...models import LiveJob, Worker
from ...vitals import Vital, busy_text, queues_text, vital, with_vitals
from .. import display
from .drain import WorkerActions
from .fleet import Fleet, state_badge
from .page import add_jobs

if TYPE_CHECKING:
    from django.db.models import QuerySet
    from django.http import HttpRequest, HttpResponse

__all__ = ["WorkerAdmin"]


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

    list_display = (
        "name", "state_now", "heartbeat", "all_queues", "busy_of", "memory_now", "uptime", "version",
    )  # fmt: skip
    ordering = ("host", "pid")
    sortable_by = ()
    search_fields = ("host",)
    fieldsets = (
        (
            None,
            {
                "fields": (
                    ("state_now", "heartbeat", "all_queues", "busy_of"),
                    ("started", "uptime", "memory_now", "version"),
                )
            },
        ),
        (_("In the database"), {"fields": ("id", "supervisor"), "classes": ("collapse",)}),
    )
    readonly_fields = (
        "state_now", "heartbeat", "all_queues", "busy_of", "started", "uptime", "memory_now", "version", "id",
        "supervisor",
    )  # fmt: skip

    class Media:
        css = {"all": ["django_pgqueue/pages.css"]}

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
            add_jobs(self, request, obj, context)
        return super().render_change_form(request, context, add, change, form_url, obj)

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
        busy = min(worker.busy, worker.slots)
        return format_html(
            '<progress class="pgqueue-bar pgqueue-slots" max="{}" value="{}" aria-hidden="true">'
            "</progress> {}",
            worker.slots, busy, busy_text(worker),
        )  # fmt: skip

    @admin.display(description=_("state"))
    def state_now(self, worker: Any) -> str:
        """Its state according to its last heartbeat, not the state in its row."""
        return state_badge(worker)

    @admin.display(description=_("last heartbeat"))
    def heartbeat(self, worker: Any) -> str:
        """The time since the last heartbeat."""
        words = str(_("%(period)s ago") % {"period": display.period(worker.age)})
        text = display.timed(words, worker.heartbeat_at)
        alarm = vital(worker) in {Vital.SILENT, Vital.DEAD}
        return format_html('<strong class="pgqueue-alarm">{}</strong>', text) if alarm else text

    @admin.display(description=_("started"))
    def started(self, worker: Worker) -> str:
        """When the process started."""
        return display.time(worker.started_at)

    @admin.display(description=_("up for"))
    def uptime(self, worker: Any) -> str:
        """How long ago the process started, on the clock of the database."""
        return display.period(worker.heartbeat_at + worker.age - worker.started_at)

    @admin.display(description=_("memory"))
    def memory_now(self, worker: Worker) -> str:
        """The memory of its process, at most ten seconds ago."""
        if worker.memory is None:
            return str(self.get_empty_value_display())
        return str(filesizeformat(worker.memory))
