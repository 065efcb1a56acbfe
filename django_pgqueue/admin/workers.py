"""Workers: the processes that run jobs. They can be asked to end."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar

from django.contrib.admin.views.main import ChangeList
from django.db.models import DurationField, ExpressionWrapper, F, QuerySet
from django.db.models.functions import Now
from django.http import HttpRequest, HttpResponse
from django.template.defaultfilters import filesizeformat
from django.utils.html import format_html
from django.utils.translation import gettext, gettext_lazy as _, ngettext, pgettext

from .. import formatting
from ..formatting import throughput
from ..jobs.limits import drain_worker
from ..models import Job, LiveJob, Worker
from ..monitoring.jobs import ended_by
from ..monitoring.workers import Crew, Vital, busy_text, queues_text, state_text, vital, with_vitals
from ..postgres.timeout import TimeLimitReached
from . import display
from .ask import RowAction, RowActions, RowEffect, about, action_words, held, is_confirmed, listed
from .base import ReadOnlyAdmin
from .charts import gauge
from .console import hidden_of, page_url, task_url, visible_jobs
from .display import alarm, column
from .jobs.filters import PAUSE
from .jobs.progress import PROGRESS_COLUMNS, progress_of_job


def state_badge(worker: Any) -> str:
    """Format the state of a worker ``with_vitals``."""
    return display.badge(vital(worker), state_text(worker))


def heartbeat(worker: Any) -> str:
    """Format the time since the last heartbeat of a worker ``with_vitals``."""
    words = gettext("%(period)s ago") % {"period": formatting.period(worker.age)}
    text = display.timed(words, worker.heartbeat_at)
    return alarm(text) if vital(worker) in {Vital.SILENT, Vital.DEAD} else text


def busy_bar(worker: Any) -> str:
    """Format how many jobs a worker runs, of how many it can run at the same time."""
    return format_html(
        '<progress class="pgqueue-bar pgqueue-slots" max="{}" value="{}" aria-hidden="true"></progress> {}',
        worker.slots, min(worker.busy, worker.slots), busy_text(worker),
    )  # fmt: skip


def worker_rows(url: partial[str], workers: Sequence[Any], most: int) -> dict[str, Any]:
    """Return what other pages show of workers ``with_vitals``, and how many they do not show."""
    rows = [
        {
            "worker": worker,
            "url": url(Worker, "change", worker.pk),
            "queues": queues_text(worker),
            "busy": busy_text(worker),
            "bar": gauge(worker.busy / worker.slots if worker.slots else 0),
            "badge": state_badge(worker),
            "beat": heartbeat(worker),
        }
        for worker in workers[:most]
    ]
    return {"workers": rows, "more_workers": max(0, len(workers) - most)}


def attendance(alive: int, silent: int) -> str:
    """Return how many workers claim jobs of a queue."""
    if silent and not alive:
        return gettext("%(count)d silent") % {"count": silent}
    return formatting.number(alive) if alive else pgettext("workers", "none")


class Fleet(Crew):
    """All workers of a database, in words."""

    def attending(self, queue: str) -> tuple[int, int]:
        """Return how many workers claim jobs of a queue, and how many are silent."""
        return self.serving(queue), sum(one.vital == Vital.SILENT for one in self.of(queue))

    @property
    def trouble(self) -> str:
        """Why no worker claims jobs, as a sentence to show if jobs are waiting; empty if a worker does."""
        vitals = {worker.vital for worker in self.workers}
        if Vital.RUNNING in vitals:
            return ""
        if Vital.SILENT in vitals:
            age = min(worker.age for worker in self.workers if worker.vital == Vital.SILENT)
            words = gettext("Jobs are waiting, and no worker has sent a heartbeat for %(period)s.")
            return words % {"period": formatting.period(age)}
        if Vital.DRAINING in vitals:
            return gettext("Jobs are waiting, and all workers are stopping.")
        return gettext("Jobs are waiting, and no worker is alive. Start one: manage.py runqueueworker")

    @property
    def standstill(self) -> str:
        """A sentence to show with schedules if no worker is there to run them; empty if one is. A worker in
        another language does not: it has no supervisor.
        """
        if any(worker.vital == Vital.RUNNING and worker.supervisor for worker in self.workers):
            return ""
        return gettext(
            "Schedules stand still, because no worker is running. Start one: manage.py runqueueworker"
        )


MOST_JOBS = 100  # on the page of a worker
_ELAPSED = ExpressionWrapper(Now() - F("last_attempted_at"), output_field=DurationField())


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


class WorkerAdmin(RowActions[Worker], ReadOnlyAdmin[Worker]):
    """Shows the workers, their queues, and whether they are alive, and can ask them to end."""

    change_list = WorkerChangeList
    purpose = _(
        "No workers are running. A worker is a process that runs jobs. Start one: manage.py runqueueworker"
    )
    list_display = (
        "name", "state_now", "heartbeat", "all_queues", "busy_of", "memory_now", "uptime", "version",
    )  # fmt: skip
    actions = ("replace_workers",)
    ordering = ("host", "pid")
    sortable_by = ()
    search_fields = ("host",)
    _now = ("state_now", "heartbeat", "all_queues", "busy_of")
    fieldsets = (
        (None, {"fields": (_now, ("started", "uptime", "memory_now", "version"))}),
        (_("In the database"), {"fields": ("id", "supervisor"), "classes": ("collapse",)}),
    )

    class Media:
        css = {"all": ["django_pgqueue/pages.css"]}

    def get_queryset(self, request: HttpRequest) -> QuerySet[Worker]:
        """Return the workers with the age of their heartbeats and the number of their running jobs."""
        return with_vitals(super().get_queryset(request))

    def page_context(self, request: HttpRequest, obj: Any) -> dict[str, Any]:
        """Add the buttons; and for users who may view jobs, the jobs that it runs and has ended."""
        context = super().page_context(request, obj)
        context["pgqueue_buttons"], context["pgqueue_pause"] = self.drain_buttons(request, obj), PAUSE
        if not page_url(self.admin_site, request, Job, "changelist"):
            return context
        # The longest running first, without their arguments.
        columns = (*PROGRESS_COLUMNS, "queue_name", "deadline", "cancel_requested_at", "last_attempted_at")
        running: QuerySet[Any] = visible_jobs(self.admin_site, request, self.database)
        running = running.filter(shelf=0, status="running", worker=obj.pk).order_by("last_attempted_at", "pk")
        running = running.select_related("live_progress").only(*columns).annotate(elapsed=_ELAPSED)
        jobs = list(running[: MOST_JOBS + 1])
        context["pgqueue_jobs"] = [
            self._job_row(request, job) | {"progress": progress_of_job(job)} for job in jobs[:MOST_JOBS]
        ]
        context["pgqueue_lost"] = vital(obj) == Vital.DEAD
        context["pgqueue_more_jobs"] = len(jobs) > MOST_JOBS
        context["pgqueue_shows_jobs"] = True
        try:
            ended, seconds, done = ended_by(self.database, obj.pk)
        except TimeLimitReached:
            context["pgqueue_history_note"] = gettext("What it has ended could not be read in time.")
            return context
        hidden = hidden_of(self.admin_site, request, self.database, [job.id for job in ended])
        context["pgqueue_history"] = [self._job_row(request, job) for job in ended if job.id not in hidden]
        if seconds:  # how fast it ended jobs, among the ones that ended last
            note = gettext("About %(rate)s, over the last %(period)s.")
            values = {"rate": throughput(done / seconds), "period": formatting.span(seconds)}
            context["pgqueue_history_note"] = note % values
        return context

    def _job_row(self, request: HttpRequest, job: Any) -> dict[str, Any]:
        url = page_url(self.admin_site, request, Job, "change", job.id)
        return {"job": job, "url": url, "task_url": task_url(self.admin_site, request, job.task_path)}

    name = column(_("worker"), str)
    all_queues = column(_("queues"), queues_text)
    state_now = column(_("state"), state_badge)
    heartbeat = column(_("last heartbeat"), heartbeat)
    busy_of = column(_("running jobs"), busy_bar)
    # Of its process, at most ten seconds ago.
    memory_now = column(
        _("memory"), lambda worker: "" if worker.memory is None else filesizeformat(worker.memory)
    )
    started = column(_("started"), lambda worker: display.time(worker.started_at))
    # On the clock of the database.
    uptime = column(
        _("up for"), lambda worker: formatting.period(worker.heartbeat_at + worker.age - worker.started_at)
    )

    row_actions: ClassVar = {
        "replace": RowAction("drain", _("Replace this process"), _("Replace processes")),
        "stop": RowAction("drain", _("Stop this worker (all processes)"), _("Stop a worker")),
    }
    replace_workers = listed("replace", _("Replace selected processes"), "drain")

    has_drain_permission = held("drain")

    def ask_or_act(self, request: HttpRequest, name: str, rows: QuerySet[Worker]) -> HttpResponse | None:
        """Ask processes to finish their jobs and end, if that was confirmed. Their supervisors replace them,
        or end with all of their processes.
        """
        workers = list(rows)
        if not is_confirmed(request):
            return self._ask(request, workers, name)
        asked = [
            worker
            for worker in workers
            if (name == "stop" or _can_be_replaced(worker))
            and drain_worker(worker.pk, replace=name == "replace", using=self.writes_to)
        ]
        words = ngettext(
            "%(count)d process was asked to finish its jobs and end.",
            "%(count)d processes were asked to finish their jobs and end.",
            len(asked),
        ) % {"count": len(asked)}
        if not asked:
            words = gettext("Nothing has changed: the worker has ended in the meantime.")
        elif name == "stop":
            words = gettext("The worker was asked to finish its jobs and end, with all its processes.")
        self.note_and_tell(request, asked, action_words(self.row_actions[name].label), words)
        return None

    def drain_buttons(self, request: HttpRequest, worker: Any) -> list[dict[str, Any]]:
        """Return the buttons that this user may press on the page of a worker now."""
        if vital(worker) == Vital.DEAD or worker.drain == "stop":
            return []
        # A worker in another language has no supervisor, so nothing replaces it.
        ends = worker.drain or worker.supervisor is None or vital(worker) == Vital.DRAINING
        return self.buttons(request, worker, ["stop"] if ends else self.row_actions)

    def _ask(self, request: HttpRequest, workers: list[Worker], name: str) -> HttpResponse:
        """Show what would happen, to all processes of the worker that would end."""
        known = list(with_vitals(Worker.objects.using(self.database)).order_by("host", "pid", "pk"))
        given = {worker.pk for worker in workers}
        ending = [worker for worker in known if worker.pk in given]
        if name == "stop":
            together = {worker.supervisor for worker in ending} - {None}
            ending = [worker for worker in known if worker.pk in given or worker.supervisor in together]
        effects = [_effect(worker, name) for worker in ending]
        gone = {worker.pk for worker in ending if name == "stop" or worker.supervisor is None}
        is_last = not any(vital(worker) == Vital.RUNNING for worker in known if worker.pk not in gone)
        warning = _("No worker would be left that starts jobs.") if gone and is_last else ""
        return self.ask(request, self.row_actions[name].title, effects, workers, warning=warning)


def _can_be_replaced(worker: Any) -> bool:
    return not worker.drain and vital(worker) in {Vital.RUNNING, Vital.SILENT}


def _effect(worker: Any, name: str) -> RowEffect:
    """Return what would happen to a process."""
    if vital(worker) == Vital.DEAD:
        return about(worker, _("{name} is dead, and would not see it."), acts=False)
    if not (name == "stop" or _can_be_replaced(worker)):
        return about(worker, _("{name} already finishes its jobs and ends."), acts=False)
    words = _(
        "{name} would start no more jobs, finish its running jobs ({jobs}) within its grace period, and be "
        "replaced."
    )
    if name == "stop" or worker.supervisor is None:
        words = _(
            "{name} would start no more jobs, finish its running jobs ({jobs}) within its grace period, and "
            "end."
        )
    return about(worker, words, jobs=busy_text(worker))
