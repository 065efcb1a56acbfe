"""Schedules: when they run next, what came of their last ticks, and their definition, which can be edited.

The columns of the list are in ``fields``, the top of the page in ``page``, the form in
``form``, and the actions in ``buttons``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from django.contrib import admin
from django.contrib.admin.views.main import ChangeList
from django.db import transaction
from django.db.models import Q
from django.utils.translation import gettext_lazy as _
from django.utils.translation import pgettext_lazy

from ...models import Schedule
from ...schedules import board
from ..workers.fleet import Fleet
from .buttons import ScheduleButtons
from .form import ScheduleForm, shown_arguments, suggestions
from .page import summary

if TYPE_CHECKING:
    from django.db.models import Model, QuerySet
    from django.forms import ModelForm
    from django.http import HttpRequest, HttpResponse

__all__ = ["ScheduleAdmin"]

_ARGUMENTS = ("args", "kwargs")


class ScheduleChangeList(ChangeList):
    """The list with the last tick of each schedule, and a warning above it if no worker is running."""

    model_admin: Any
    trouble = ""

    def get_results(self, request: HttpRequest) -> None:
        """Read the page, its last ticks, and the warning."""
        super().get_results(request)
        self.result_list = list(self.result_list)
        alias = self.model_admin.database
        self.model_admin.for_user(request, self.result_list)
        board.add_last_ticks(alias, self.result_list)
        if any(schedule.is_active for schedule in self.result_list):
            self.trouble = Fleet(alias).standstill


class StateFilter(admin.SimpleListFilter):
    """Filter by state."""

    title = _("state")
    parameter_name = "state"
    _states = {
        "active": (pgettext_lazy("schedule", "active"), Q(paused_at__isnull=True, retired_at__isnull=True)),
        "paused": (pgettext_lazy("schedule", "paused"), Q(paused_at__isnull=False, retired_at__isnull=True)),
        "retired": (pgettext_lazy("schedule", "retired"), Q(retired_at__isnull=False)),
    }

    def lookups(self, request: HttpRequest, model_admin: Any) -> Any:
        """Return all states, even if there are no such schedules."""
        return [(key, label) for key, (label, _where) in self._states.items()]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Return the schedules in the chosen state."""
        chosen = self._states.get(self.value() or "")
        return queryset.filter(chosen[1]) if chosen else queryset


class OverriddenFilter(admin.SimpleListFilter):
    """Filter by whether the admin overrides what is declared."""

    title = _("changes in the admin")
    parameter_name = "overridden"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Any:
        """Return yes and no."""
        return [("yes", _("Yes")), ("no", _("No"))]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Return the schedules with or without overridden fields."""
        if self.value() == "yes":
            return queryset.exclude(overridden=[])
        return queryset.filter(overridden=[]) if self.value() == "no" else queryset


class ScheduleAdmin(ScheduleButtons):
    """Shows schedules, and can edit, pause, resume and run them.

    Only schedules that were made here, or that are retired, can be deleted: the next worker that starts would
    create the others again.
    """

    form = ScheduleForm
    list_display = ("named", "when", "state_now", "next_run", "last_run", "declared_in")
    list_filter = (StateFilter, "source", OverriddenFilter)
    search_fields = ("name", "task_path")
    ordering = ("name",)
    fieldsets = (
        (_("What runs"), {"fields": ("name", "task_path", "args", "kwargs", "queue_name", "priority")}),
        (_("When it runs"), {"fields": ("cron", "every", "timezone", "jitter")}),
        (_("Missed and overlapping runs"), {"fields": ("catch_up", "catch_up_limit", "overlap")}),
    )

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ScheduleChangeList]:
        """Return the list with the last ticks."""
        return ScheduleChangeList

    def get_queryset(self, request: HttpRequest) -> QuerySet[Schedule]:
        """Return the schedules with the time of the database."""
        return board.with_clock(super().get_queryset(request))

    def get_object(
        self, request: HttpRequest, object_id: str, from_field: str | None = None
    ) -> Schedule | None:
        """Return the schedule, which knows whether this user may view its arguments."""
        schedule = super().get_object(request, object_id, from_field)
        self.for_user(request, [] if schedule is None else [schedule])
        return schedule

    def get_fieldsets(self, request: HttpRequest, obj: Schedule | None = None) -> Any:
        """Leave out the arguments of an existing schedule for users who may not view them. They stay as they
        are, whatever such a user sends.
        """
        fieldsets = super().get_fieldsets(request, obj)
        if obj is None or self.has_view_arguments_permission(request):
            return fieldsets
        return [
            (name, {**options, "fields": [each for each in options["fields"] if each not in _ARGUMENTS]})
            for name, options in fieldsets
        ]

    def get_form(
        self, request: HttpRequest, obj: Schedule | None = None, change: bool = False, **kwargs: Any
    ) -> type[ModelForm[Schedule]]:
        """Return the form for this database."""
        form = cast("type[ScheduleForm]", super().get_form(request, obj, change=change, **kwargs))
        form.using = self.writes_to
        return form

    def get_readonly_fields(self, request: HttpRequest, obj: Model | None = None) -> tuple[str, ...]:
        """Make the name of an existing schedule read-only, because its ticks and jobs refer to it."""
        return () if obj is None else ("name",)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Do not permit to delete what is declared in code or settings."""
        is_declared = obj is not None and obj.source != Schedule.Source.ADMIN and obj.retired_at is None
        return not is_declared and super().has_delete_permission(request, obj)

    def get_deleted_objects(self, objs: Any, request: HttpRequest) -> tuple[Any, Any, Any, Any]:
        """Return what a deletion would delete, without listing the ticks of a schedule, which may be many.

        Django's own function also reads the database that the routers choose.
        """
        listed = list(objs)
        needed = {
            _("schedule “%(name)s”, which is declared in %(where)s")
            % {"name": schedule.pk, "where": schedule.get_source_display()}
            for schedule in listed
            if not self.has_delete_permission(request, schedule)
        }
        return (
            [str(schedule) for schedule in listed],
            {self.opts.verbose_name_plural: len(listed)},
            needed,
            [],
        )

    def render_change_form(
        self,
        request: HttpRequest,
        context: dict[str, Any],
        add: bool = False,
        change: bool = False,
        form_url: str = "",
        obj: Schedule | None = None,
    ) -> HttpResponse:
        """Add the state of the schedule, and suggestions for the fields."""
        if obj is not None:
            context["pgqueue"] = summary(self.admin_site, request, self.database, obj)
            context["pgqueue_trouble"] = Fleet(self.database).standstill if obj.is_active else ""
            if not self.has_change_permission(request, obj):  # then Django shows the values of the object
                obj.args, obj.kwargs = shown_arguments(obj)
        context["pgqueue_suggestions"] = suggestions()
        return super().render_change_form(request, context, add, change, form_url, obj)

    def save_model(self, request: HttpRequest, obj: Schedule, form: Any, change: bool) -> None:
        """Save in the database of this class, and only what the form has changed.

        Races: a worker that starts may have written a new declaration since the row was read, which must
        stay. Somebody may have created a schedule of the same name, which an INSERT does not overwrite.
        """
        if not change:
            obj.save(using=self.writes_to, force_insert=True)
            return
        with transaction.atomic(using=self.writes_to):
            locked = Schedule.objects.using(self.writes_to).select_for_update(no_key=True).get(pk=obj.pk)
            for name in form.changed_data:
                setattr(locked, name, getattr(obj, name))
            locked.save(using=self.writes_to)

    def delete_model(self, request: HttpRequest, obj: Schedule) -> None:
        """Delete from the database of this class."""
        obj.delete(using=self.writes_to)
