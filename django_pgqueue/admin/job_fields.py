"""How the columns of a job look, in the list and on its page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.contrib.admin.utils import quote
from django.urls import NoReverseMatch, reverse
from django.utils.dateparse import parse_datetime
from django.utils.html import format_html
from django.utils.text import Truncator
from django.utils.translation import gettext_lazy as _

from ..models import Job, Queue, Worker
from ..models.job import Status
from . import display
from .base import ReadOnlyAdmin

if TYPE_CHECKING:
    from collections.abc import Callable

    from django.db.models import Model
    from django.http import HttpRequest, HttpResponse

__all__ = ["JobFields"]


def _time(column: str, description: Any) -> Callable[[Any, Job], str]:
    """A field that shows a time to the second."""

    @admin.display(description=description)
    def show(self: Any, job: Job) -> str:
        return display.time(getattr(job, column)) or self.get_empty_value_display()

    return show


def _json(column: str, description: Any, *, hide_empty: bool = False) -> Callable[[Any, Job], str]:
    """A field that shows a JSON value."""

    @admin.display(description=description)
    def show(self: Any, job: Job) -> str:
        value = getattr(job, column)
        if value is None or (hide_empty and not value):
            return str(self.get_empty_value_display())
        return display.json_block(value)

    return show


def _moment(error: dict[str, Any], key: str) -> str:
    """A time of an error, which is text in JSON; as it is if it is no time."""
    text = str(error.get(key) or "")
    try:
        return display.time(parse_datetime(text))
    except ValueError:
        return text


class JobFields(ReadOnlyAdmin[Job]):
    """The part of ``JobAdmin`` that shows."""

    enqueued = _time("enqueued_at", _("enqueued"))
    due = _time("run_after", _("run after"))
    expires = _time("expires_at", _("expires"))
    started = _time("started_at", _("first started"))
    last_attempted = _time("last_attempted_at", _("last attempted"))
    ends_by = _time("deadline", _("deadline"))
    asked_to_stop = _time("cancel_requested_at", _("asked to stop"))
    finished = _time("finished_at", _("finished"))
    arguments = _json("args", _("arguments"))
    keyword_arguments = _json("kwargs", _("keyword arguments"))
    noted = _json("metadata", _("metadata"), hide_empty=True)
    outcome = _json("result", _("result"))

    @admin.display(description=_("status"))
    def state(self, job: Job) -> str:
        """The status; for a running job that was asked to stop, that too."""
        badge = display.status_badge(job.status)
        if job.status == Status.RUNNING and job.cancel_requested_at is not None:
            return format_html("{} ({})", badge, _("asked to stop"))
        return badge

    @admin.display(description=_("ran for"))
    def ran_for(self, job: Job) -> str:
        """How long the last attempt took, of a job that is over."""
        return display.seconds(job.duration) or self.get_empty_value_display()

    @admin.display(description=_("attempts"))
    def tries(self, job: Job) -> str:
        """How many of how many."""
        if job.max_attempts is None:
            return str(job.attempts)
        most = job.forgiven_attempts + job.max_attempts
        return str(_("%(attempts)d of %(most)d") % {"attempts": job.attempts, "most": most})

    @admin.display(description=_("note"))
    def note(self, job: Any) -> str:
        """Why the job waits, or how it failed last (``JobAdmin.rows_for_list``)."""
        words = job.waiting_reason or ": ".join(filter(None, (job.error_class, job.error_words)))
        return Truncator(words).chars(80) or self.get_empty_value_display()

    @admin.display(description=_("queue"))
    def queue(self, job: Job) -> str:
        """The queue, with a link to its settings if it has any."""
        has_settings = Queue.objects.using(job._state.db).filter(pk=job.queue_name).exists()
        return self._link_to(Queue, job.queue_name, job.queue_name) if has_settings else job.queue_name

    @admin.display(description=_("worker"))
    def by_worker(self, job: Job) -> str:
        """The worker of the last attempt, with a link while it lives."""
        if job.worker is None:
            return self.get_empty_value_display()
        worker = Worker.objects.using(job._state.db).filter(pk=job.worker).first()
        return str(job.worker) if worker is None else self._link_to(Worker, worker.pk, str(worker))

    def render_change_form(
        self,
        request: HttpRequest,
        context: dict[str, Any],
        add: bool = False,
        change: bool = False,
        form_url: str = "",
        obj: Job | None = None,
    ) -> HttpResponse:
        """The page of a job, with its errors, the last one first."""
        context["pgqueue_errors"] = [
            {**error, "started": _moment(error, "started_at"), "ended": _moment(error, "finished_at")}
            for error in reversed(obj.errors if obj else [])
        ]
        return super().render_change_form(request, context, add, change, form_url, obj)

    def _link_to(self, model: type[Model], key: Any, text: str) -> str:
        """A link to a row of another model, if this site shows it."""
        name = f"admin:{model._meta.app_label}_{model._meta.model_name}_change"
        try:
            url = reverse(name, args=[quote(key)], current_app=self.admin_site.name)
        except NoReverseMatch:
            return text
        return format_html('<a href="{}">{}</a>', url, text)
