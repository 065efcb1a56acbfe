"""Workers: the processes that run jobs, to look at."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.db.models import Count, DurationField, ExpressionWrapper, F, IntegerField, OuterRef, Subquery
from django.db.models.functions import Coalesce, Now
from django.utils.html import format_html
from django.utils.translation import gettext_lazy as _

from .. import conf
from ..models import LiveJob, Worker
from . import display
from .base import ReadOnlyAdmin

if TYPE_CHECKING:
    from django.db.models import QuerySet
    from django.http import HttpRequest

__all__ = ["WorkerAdmin", "is_silent", "with_vitals"]


def with_vitals(workers: QuerySet[Worker]) -> QuerySet[Any]:
    """The workers, each with the ``age`` of its heartbeat on the database's clock, and its ``busy`` slots."""
    age = ExpressionWrapper(Now() - F("heartbeat_at"), output_field=DurationField())
    running = LiveJob.objects.filter(status="running", worker=OuterRef("pk")).order_by()  # type: ignore[attr-defined]
    busy = Subquery(running.values("worker").annotate(n=Count("pk")).values("n"), output_field=IntegerField())
    return workers.annotate(age=age, busy=Coalesce(busy, 0))


def is_silent(worker: Any) -> bool:
    """Whether a worker ``with_vitals`` has been silent for so long that others will get its jobs."""
    age: timedelta = worker.age
    return age.total_seconds() > conf.current().lease


class WorkerAdmin(ReadOnlyAdmin[Worker]):
    """Which workers there are, what they work on, and whether they live."""

    list_display = ("name", "all_queues", "busy_of", "state", "heartbeat", "started", "version")
    ordering = ("host", "pid")
    sortable_by = ()
    fields = ("name", "id", "supervisor", "all_queues", "busy_of", "state", "heartbeat", "started", "version")
    readonly_fields = fields

    def get_queryset(self, request: HttpRequest) -> QuerySet[Worker]:
        """The workers with their age and what they run."""
        return with_vitals(super().get_queryset(request))

    @admin.display(description=_("worker"))
    def name(self, worker: Worker) -> str:
        """Host and process."""
        return str(worker)

    @admin.display(description=_("queues"))
    def all_queues(self, worker: Worker) -> str:
        """The queues it works on."""
        return ", ".join(worker.queues) or str(_("all"))

    @admin.display(description=_("running jobs"))
    def busy_of(self, worker: Any) -> str:
        """How many jobs it runs, of how many it may run at once."""
        return str(_("%(busy)d of %(slots)d") % {"busy": worker.busy, "slots": worker.slots})

    @admin.display(description=_("last heartbeat"))
    def heartbeat(self, worker: Any) -> str:
        """How long ago."""
        text = str(_("%(period)s ago") % {"period": display.period(worker.age)})
        return format_html('<strong class="pgqueue-silent">{}</strong>', text) if is_silent(worker) else text

    @admin.display(description=_("started"))
    def started(self, worker: Worker) -> str:
        """When the process started."""
        return display.time(worker.started_at)
