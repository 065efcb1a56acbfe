"""Queues: their figures, and their settings, which can be edited. The list is in ``queue_list``."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast

from django import forms
from django.contrib import admin
from django.core.exceptions import ValidationError
from django.utils.html import format_html
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import gettext_lazy as _

from ..models import Queue
from . import display
from .base import DatabaseAdmin
from .queue_list import QueueChangeList, Standing

if TYPE_CHECKING:
    from django.db.models import Model
    from django.http import HttpRequest

    ModelForm = forms.ModelForm[Queue]
else:
    ModelForm = forms.ModelForm

__all__ = ["QueueAdmin"]


class QueueForm(ModelForm):
    """Checks the settings, and that the name is not used in the displayed database."""

    using: str

    def clean(self) -> dict[str, Any]:
        """Refuse negative periods, and a longest wait that is shorter than the first one."""
        cleaned = super().clean() or self.cleaned_data
        for name in ("keep_done", "keep_failed"):
            kept = cleaned.get(name)
            if kept is not None and kept < timedelta(0):
                self.add_error(name, _("Enter zero or more."))
        base, ceiling = cleaned.get("backoff_base"), cleaned.get("backoff_ceiling")
        if base is not None and ceiling is not None and ceiling < base:
            self.add_error("backoff_ceiling", _("The longest wait must not be shorter than the first wait."))
        return cleaned

    def validate_unique(self) -> None:
        """Do what Django's method does, which would query the database that the routers choose."""
        name = self.cleaned_data.get("name")
        if name and Queue.objects.using(self.using).filter(pk=name).exists():
            taken = ValidationError(_("A queue with this name already exists."), code="unique")
            self.add_error("name", taken)


class QueueAdmin(DatabaseAdmin[Queue]):
    """Empty settings default to those in ``PGQUEUE``. A queue without a row works and is listed, too."""

    form = QueueForm
    list_display = (
        "name", "paused", "workers", "ready", "oldest", "waiting", "running", "failed", "own_settings",
    )  # fmt: skip
    search_fields = ("name",)
    sortable_by = ()
    fieldsets = (
        (None, {"fields": ("name",)}),
        (_("History"), {"fields": ("keep_done", "keep_failed")}),
        (_("Waits before a retry"), {"fields": ("backoff_base", "backoff_ceiling")}),
    )

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[QueueChangeList]:
        """Return the list of all queues."""
        return QueueChangeList

    @admin.display(description=getattr(admin.ModelAdmin.action_checkbox, "short_description", ""))
    def action_checkbox(self, obj: Queue) -> SafeString:
        """Show a checkbox only if there is a row."""
        return mark_safe("&nbsp;") if obj._state.adding else super().action_checkbox(obj)

    @admin.display(description=_("workers"))
    def workers(self, queue: Any) -> str:
        """How many live workers claim its jobs."""
        standing: Standing = queue.standing
        return _alarm(standing.attendance) if standing.unattended else str(standing.attendance)

    @admin.display(description=_("ready"))
    def ready(self, queue: Any) -> str:
        """How many jobs are due."""
        return display.number(queue.standing.depth.ready)

    @admin.display(description=_("oldest due for"))
    def oldest(self, queue: Any) -> str:
        """How long the oldest job has been due."""
        text = display.period(queue.standing.depth.oldest)
        return _alarm(text) if text and queue.standing.unattended else text

    @admin.display(description=_("waiting"))
    def waiting(self, queue: Any) -> str:
        """How many jobs are pending, to retry or blocked, whether due or not."""
        return display.number(queue.standing.depth.waiting)

    @admin.display(description=_("running"))
    def running(self, queue: Any) -> str:
        """How many jobs are running, and how many of these are lost."""
        standing: Standing = queue.standing
        running = standing.linked(standing.depth.running, status="running")
        if not standing.depth.lost:
            return running
        return format_html("{}, {}", running, _alarm(_("%(count)d lost") % {"count": standing.depth.lost}))

    @admin.display(description=_("failed in 24 hours"))
    def failed(self, queue: Any) -> str:
        """How many jobs failed in the last 24 hours."""
        standing: Standing = queue.standing
        failed = standing.linked(standing.depth.failed_day, status="failed", finished="day")
        return _alarm(failed) if standing.depth.failed_day else failed

    @admin.display(description=_("settings"))
    def own_settings(self, queue: Queue) -> str:
        """The settings that differ from ``PGQUEUE``."""
        parts = [
            _kept(_("done jobs"), queue.keep_done),
            _kept(_("failed jobs"), queue.keep_failed),
            _wait(_("first wait"), queue.backoff_base),
            _wait(_("longest wait"), queue.backoff_ceiling),
        ]
        return ", ".join(filter(None, parts)) or str(_("default"))

    @admin.display(description=_("pause"))
    def paused(self, queue: Any) -> str:
        """Who has paused it, why, and until when; or a link that pauses it."""
        standing: Standing = queue.standing
        return standing.paused

    def get_form(
        self, request: HttpRequest, obj: Queue | None = None, change: bool = False, **kwargs: Any
    ) -> type[ModelForm]:
        """Return the form for this database."""
        form = cast("type[QueueForm]", super().get_form(request, obj, change=change, **kwargs))
        form.using = self.database
        return form

    def get_readonly_fields(self, request: HttpRequest, obj: Model | None = None) -> tuple[str, ...]:
        """Make the name of an existing queue read-only, because jobs refer to it."""
        return () if obj is None else ("name",)

    def save_model(self, request: HttpRequest, obj: Queue, form: Any, change: bool) -> None:
        """Save in the database of this class."""
        obj.save(using=self.using)

    def delete_model(self, request: HttpRequest, obj: Queue) -> None:
        """Delete from the database of this class. The queue continues with the default settings."""
        obj.delete(using=self.using)


def _alarm(text: Any) -> str:
    return format_html('<strong class="pgqueue-alarm">{}</strong>', text)


def _kept(what: Any, period: timedelta | None) -> str:
    if period is None:
        return ""
    text = _("%(jobs)s kept for %(period)s") if period else _("%(jobs)s not kept")
    return str(text % {"jobs": what, "period": display.period(period)})


def _wait(what: Any, seconds: float | None) -> str:
    return "" if seconds is None else f"{what} {display.span(seconds)}"
