"""Queues: their figures, and their settings, which can be edited. The list is in ``list``."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast

from django import forms
from django.contrib import admin
from django.core.exceptions import ValidationError
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import gettext_lazy as _
from django.utils.translation import pgettext_lazy

from ...figures.queues import MOST_FAILURES
from ...figures.throughput import per_second, rate_text
from ...models import Queue
from .. import display
from ..base import DatabaseAdmin
from ..charts.chart import MEDIA
from ..charts.sparkline import sparkline
from .list import QueueChangeList, Standing
from .page import add_readings, existing_queue

if TYPE_CHECKING:
    from django.db.models import Model
    from django.http import HttpRequest, HttpResponse

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
        "name", "paused", "workers", "ready", "oldest", "waiting", "running", "rate", "failed",
        "own_settings",
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

    @admin.display(description=pgettext_lazy("number of jobs", "ready"))
    def ready(self, queue: Any) -> str:
        """How many jobs are due."""
        return display.capped(queue.standing.figures.depth.ready)

    @admin.display(description=_("oldest due for"))
    def oldest(self, queue: Any) -> str:
        """How long the oldest job has been due."""
        text = display.period(queue.standing.figures.oldest)
        return _alarm(text) if text and queue.standing.unattended else text

    @admin.display(description=pgettext_lazy("number of jobs", "waiting"))
    def waiting(self, queue: Any) -> str:
        """How many jobs are not due yet, how many of these back off, and how many are blocked."""
        standing: Standing = queue.standing
        depth = standing.figures.depth
        parts = [_("%(count)s scheduled") % {"count": display.capped(depth.scheduled)}] * bool(
            depth.scheduled
        )
        for count, status, text in (
            (depth.retrying, "retry", _("{} backing off")),
            (depth.blocked, "blocked", _("{} blocked")),
        ):
            if count:
                parts.append(format_html(str(text), standing.linked(display.capped(count), status=status)))
        return format_html_join(", ", "{}", ((part,) for part in parts)) or display.number(0)

    @admin.display(description=pgettext_lazy("number of jobs", "running"))
    def running(self, queue: Any) -> str:
        """How many jobs are running, and how many of these are lost."""
        standing: Standing = queue.standing
        running = standing.linked(display.capped(standing.figures.depth.running), status="running")
        if not standing.figures.lost:
            return running
        return format_html("{}, {}", running, _alarm(_("%(count)d lost") % {"count": standing.figures.lost}))

    @admin.display(description=_("rate"))
    def rate(self, queue: Any) -> str:
        """How fast attempts ended in the last hour, and how that was."""
        figures = queue.standing.figures
        if figures.hour is None:
            return display.number(0)
        points = [
            done + failed for done, failed in zip(figures.trend.done, figures.trend.failed, strict=True)
        ]
        return format_html("{}{}", rate_text(per_second([figures.hour])), sparkline(points))

    @admin.display(description=_("failed in 24 hours"))
    def failed(self, queue: Any) -> str:
        """How many jobs failed in the last 24 hours."""
        standing: Standing = queue.standing
        count = standing.figures.failed_day
        text = display.number(count) + ("+" if count >= MOST_FAILURES else "")
        failed = standing.linked(text, status="failed", finished="day")
        return _alarm(failed) if count else failed

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

    @property
    def media(self) -> forms.Media:
        """Add what the charts need."""
        return super().media + MEDIA + forms.Media(css={"all": ["django_pgqueue/pages.css"]})

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Queue | None:
        """Return the queue. One that is in use but has no settings is an unsaved row."""
        return super().get_object(request, object_id, from_field) or existing_queue(self.database, object_id)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """The first settings of a queue add a row."""
        if obj is not None and obj._state.adding:
            return super().has_add_permission(request)
        return super().has_change_permission(request, obj)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Without settings, there is nothing to delete."""
        return not (obj is not None and obj._state.adding) and super().has_delete_permission(request, obj)

    def render_change_form(
        self,
        request: HttpRequest,
        context: dict[str, Any],
        add: bool = False,
        change: bool = False,
        form_url: str = "",
        obj: Queue | None = None,
    ) -> HttpResponse:
        """Add the figures of the queue."""
        if obj is not None:
            add_readings(self, request, obj, context)
        return super().render_change_form(request, context, add, change, form_url, obj)

    def get_form(
        self, request: HttpRequest, obj: Queue | None = None, change: bool = False, **kwargs: Any
    ) -> type[ModelForm]:
        """Return the form for this database."""
        form = cast("type[QueueForm]", super().get_form(request, obj, change=change, **kwargs))
        form.using = self.writes_to
        return form

    def get_readonly_fields(self, request: HttpRequest, obj: Model | None = None) -> tuple[str, ...]:
        """Make the name of an existing queue read-only, because jobs refer to it."""
        return () if obj is None else ("name",)

    def save_model(self, request: HttpRequest, obj: Queue, form: Any, change: bool) -> None:
        """Save in the database of this class."""
        obj.save(using=self.writes_to)

    def delete_model(self, request: HttpRequest, obj: Queue) -> None:
        """Delete from the database of this class. The queue continues with the default settings."""
        obj.delete(using=self.writes_to)


def _alarm(text: Any) -> str:
    return format_html('<strong class="pgqueue-alarm">{}</strong>', text)


def _kept(what: Any, period: timedelta | None) -> str:
    if period is None:
        return ""
    text = _("%(jobs)s kept for %(period)s") if period else _("%(jobs)s not kept")
    return str(text % {"jobs": what, "period": display.period(period)})


def _wait(what: Any, seconds: float | None) -> str:
    return "" if seconds is None else f"{what} {display.span(seconds)}"
