"""Schedules: when they run next, what came of their last runs, and their definition, which can be edited."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from typing import Any
from zoneinfo import available_timezones

from django.contrib import admin
from django.contrib.admin.views.main import ChangeList
from django.core.exceptions import PermissionDenied, ValidationError
from django.db import transaction
from django.db.models import Q, QuerySet, Value
from django.http import HttpRequest, HttpResponse
from django.utils.html import escape
from django.utils.text import Truncator
from django.utils.translation import gettext, gettext_lazy as _, ngettext, pgettext_lazy

from ... import formatting
from ...exceptions import InvalidKey, JobExists
from ...explanation import schedules as words
from ...models import Schedule
from ...models.schedule import definition_of
from ...schedules.policy import problem_of
from ...tasks.registry import known_tasks
from .. import display
from ..ask import RowAction, RowActions, RowEffect, about, action_words, held, is_confirmed, listed
from ..base import DatabaseForm
from ..display import breakable, column, plural, with_count, with_more
from ..job_page.formatter import ArgumentsForm, shown_arguments
from ..jobs.filters import PAUSE
from ..lists import ConditionFilter
from ..workers import Fleet
from .page import call_text, next_run, outcome_text, overridden, state_badge, state_text, summary, value_text

_zones = cache(available_timezones)  # which reads many files
#: The fields with a list of suggestions, and the id of this list on the page.
SUGGESTIONS = {"task_path": "pgqueue-tasks", "timezone": "pgqueue-zones"}


class ScheduleForm(ArgumentsForm, DatabaseForm):
    """Checks that the name is not used in the displayed database. The model checks everything else."""

    taken = _("A schedule with this name already exists.")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name, place in SUGGESTIONS.items():
            if name in self.fields:
                self.fields[name].widget.attrs["list"] = place
        for name in ("args", "kwargs"):
            if name in self.fields:
                self.fields[name].widget.attrs["rows"] = 3
        given = self.initial
        self.show_arguments(self.instance)
        if self.instance._state.adding:
            self.initial = given  # what the address of the page says
        declared, here = self.instance.declared or {}, definition_of(self.instance)
        for name, field in self.fields.items():
            if name in declared and declared[name] != here.get(name):
                value = value_text(declared[name], name, self.instance)
                # Django shows help texts as HTML, and the value may be an argument.
                text = escape(gettext("Declared: %(value)s") % {"value": value})
                field.help_text = f"{text}. {field.help_text}" if field.help_text else f"{text}."

    def add_error(self, field: str | None, error: Any) -> None:
        """Say nothing of arguments that are not in the form: the user may not view them, nor their errors."""
        found = error.error_dict if field is None and hasattr(error, "error_dict") else {}
        if hidden := {"args", "kwargs"}.intersection(found) - set(self.fields):
            super().add_error("task_path", gettext("The task does not take the arguments of this schedule."))
            error = ValidationError({name: each for name, each in found.items() if name not in hidden})
        super().add_error(field, error)


def suggestions() -> dict[str, list[str]]:
    """Return the suggestions by the id of their list: tasks that this process can find, and time zones."""
    return {SUGGESTIONS["task_path"]: [*known_tasks()], SUGGESTIONS["timezone"]: sorted(_zones())}


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleAction(RowAction):
    """An action on schedules. It acts with public functions, or with ``save()``."""

    effect: Callable[[Any], RowEffect]
    """What the action would do with a schedule. The database decides it again."""
    run: Callable[[Schedule, str, str], bool]
    """Act on a locked schedule, with the author and the reason. Return whether it has changed."""
    done: Any
    undone: Any = _("No schedule changed.")  # noqa: RUF009 - it is lazy


def _run(schedule: Schedule, _author: str, _reason: str) -> bool:
    """Run it, unless it is retired by now. Return whether there is a new job, or one with new arguments."""
    if schedule.retired_at is not None:
        return False
    try:
        return schedule.enqueue().enqueue_outcome != "existing"
    except (JobExists, InvalidKey):  # the page says which
        return False


def _restore(schedule: Schedule, _author: str, _reason: str) -> bool:
    """Take the declared values back."""
    if not schedule.overridden:
        return False
    for field, value in (schedule.declared or {}).items():
        is_length = field in {"every", "jitter"} and value is not None
        setattr(schedule, field, timedelta(seconds=value) if is_length else value)
    schedule.save()
    return True


def _would_pause(schedule: Any) -> RowEffect:
    text = gettext("{name} would not run until it is resumed.")
    if schedule.paused_at is not None:
        text = gettext("{name} is already paused.")
    elif schedule.retired_at is not None:
        text = gettext("{name} is retired and does not run.")
    return about(schedule, text, acts=schedule.is_active)


def _would_resume(schedule: Any) -> RowEffect:
    if schedule.paused_at is None:
        return about(schedule, gettext("{name} is not paused."), acts=False)
    if schedule.retired_at is not None:
        text = gettext("{name} would not be paused any more, but it is retired and does not run.")
        return about(schedule, text)
    try:
        [run] = words.next_runs(schedule, 1)
    except ValueError as error:
        return about(schedule, "{name}: {problem}", problem=error)
    text = gettext("{name} would run next in {period}. What it has missed since the pause would not run.")
    return about(schedule, text, period=formatting.period(run - schedule.now))


def _would_run(schedule: Any) -> RowEffect:
    if schedule.retired_at is not None:
        return about(schedule, gettext("{name} is retired and does not change."), acts=False)
    if problem := problem_of(schedule):
        return about(schedule, gettext("{name} cannot run: {problem}"), problem=problem, acts=False)
    text = gettext("{name} would enqueue one job now, besides its next run: {call}")
    if schedule.paused_at is not None:
        text = gettext("{name} would enqueue one job now, although it is paused: {call}")
    return about(schedule, text, call=call_text(schedule))


def _would_restore(schedule: Any) -> RowEffect:
    if not schedule.overridden:
        return about(schedule, gettext("{name} does not differ from what is declared."), acts=False)
    one = gettext("%(field)s: %(declared)s instead of %(here)s")
    changes = [
        one % {"field": label, "declared": declared, "here": here}
        for label, here, declared in overridden(schedule)
    ]
    text = gettext("{name} would be as declared again: {changes}.")
    return about(schedule, text, changes="; ".join(changes))


#: Each action by its name, the end of its URL.
ACTIONS = {
    "pause": ScheduleAction(
        permission="pause",
        label=_("Pause"),
        title=_("Pause schedules"),
        effect=_would_pause,
        run=lambda schedule, author, reason: schedule.pause(reason=reason, author=author),
        done=plural("%(number)s schedule is paused.", "%(number)s schedules are paused."),
    ),
    "resume": ScheduleAction(
        permission="pause",
        label=_("Resume"),
        title=_("Resume schedules"),
        effect=_would_resume,
        run=lambda schedule, _author, _reason: schedule.resume(),
        done=plural("%(number)s schedule is resumed.", "%(number)s schedules are resumed."),
    ),
    "enqueue": ScheduleAction(
        permission="enqueue",
        label=_("Run now"),
        title=_("Run schedules now"),
        effect=_would_run,
        run=_run,
        done=plural("%(number)s job is enqueued.", "%(number)s jobs are enqueued, one for each schedule."),
        undone=_("No job is enqueued: the schedule is retired, or another job has its unique key."),
    ),
    "restore": ScheduleAction(
        permission="change",
        label=_("Back to what is declared"),
        title=_("Back to what is declared"),
        effect=_would_restore,
        run=_restore,
        done=plural(
            "%(number)s schedule is as declared again.", "%(number)s schedules are as declared again."
        ),
    ),
}


class ScheduleChangeList(ChangeList):
    """The list with the last run of each schedule, and a warning above it if no worker is running."""

    model_admin: Any
    trouble = ""

    def get_results(self, request: HttpRequest) -> None:
        """Read the page, its last runs, and the warning."""
        super().get_results(request)
        self.result_list = list(self.result_list)
        alias = self.model_admin.database
        words.add_last_runs(alias, self.result_list)
        if any(schedule.is_active for schedule in self.result_list):
            self.trouble = Fleet(alias).standstill


_STATES: dict[str, tuple[Any, Q]] = {
    "active": (pgettext_lazy("schedule", "active"), Q(paused_at__isnull=True, retired_at__isnull=True)),
    "paused": (pgettext_lazy("schedule", "paused"), Q(paused_at__isnull=False, retired_at__isnull=True)),
    "retired": (pgettext_lazy("schedule", "retired"), Q(retired_at__isnull=False)),
}
_OVERRIDDEN: dict[str, tuple[Any, Q]] = {
    "yes": (_("Yes"), ~Q(overridden=[])),
    "no": (_("No"), Q(overridden=[])),
}


class ScheduleAdmin(RowActions[Schedule]):
    """Shows schedules, and can edit, pause, resume and run them.

    Only schedules that were made here, or that are retired, can be deleted: the next worker that starts would
    create the others again.
    """

    form = ScheduleForm
    change_list = ScheduleChangeList
    purpose = _(
        "There are no schedules yet. A schedule enqueues a job of a task again and again. Declare "
        'one in the code, with @schedule(cron="0 6 * * *") above a task, or add one here.'
    )
    list_display = ("named", "when", "state_now", "next_run", "last_run", "declared_in")
    list_filter = (
        ConditionFilter.of(_("state"), "state", _STATES),
        "source",
        ConditionFilter.of(_("changes in the admin"), "overridden", _OVERRIDDEN),
    )
    search_fields = ("name", "task_path")
    ordering = ("name",)
    fixed_fields = ("name",)  # to which its runs and jobs refer
    fieldsets = (
        (_("What runs"), {"fields": ("name", "task_path", "args", "kwargs", "queue_name", "priority")}),
        (_("When it runs"), {"fields": ("cron", "every", "timezone", "jitter")}),
        (_("Missed and overlapping runs"), {"fields": ("catch_up", "catch_up_limit", "overlap")}),
    )

    row_actions = ACTIONS
    actions = ("pause_schedules", "resume_schedules", "enqueue_schedules")
    pause_schedules = listed("pause", _("Pause selected %(verbose_name_plural)s"))
    resume_schedules = listed("resume", _("Resume selected %(verbose_name_plural)s"), "pause")
    enqueue_schedules = listed("enqueue", _("Run selected %(verbose_name_plural)s now"))

    has_pause_permission = held("pause")
    has_enqueue_permission = held("enqueue")
    has_view_arguments_permission = held("view_arguments", of_jobs=True)

    @admin.display(description=_("schedule"), ordering="name")
    def named(self, schedule: Schedule) -> str:
        """The name, and below it the task with its arguments. The name is often the path of the task."""
        call = call_text(schedule)
        if schedule.name == schedule.task_path:
            call = call.removeprefix(schedule.name).removesuffix("()")
        return with_more(breakable(schedule.name), breakable(Truncator(call).chars(80)))

    when = column(
        _("when"),
        lambda row: with_more(
            words.timing(row), breakable(f"{row.cron}, {row.timezone}" if row.cron else "")
        ),
    )
    state_now = column(_("state"), lambda row: with_more(state_badge(row), state_text(row, 95)))
    next_run = column(_("next run"), lambda row: with_more(*next_run(row)), "next_run_at")
    last_run = column(
        _("last run"),
        lambda row: row.last and with_more(outcome_text(row.last), display.time(row.last.run_at)),
        "last_run_at",
    )

    @admin.display(description=_("declared in"), ordering="source")
    def declared_in(self, schedule: Schedule) -> str:
        """Who declares it, and which fields the admin overrides."""
        changed = [label for label, *_values in overridden(schedule)]
        here = _("changed here: %(fields)s") % {"fields": ", ".join(changed)} if changed else ""
        return with_more(breakable(words.origin(schedule)), here)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Schedule]:
        """Return the schedules with the time of the database, and whether this user may view arguments."""
        full = Value(self.has_view_arguments_permission(request))
        found: QuerySet[Schedule] = words.with_clock(super().get_queryset(request))
        return found.annotate(shows_arguments=full)

    def get_fieldsets(self, request: HttpRequest, obj: Schedule | None = None) -> Any:
        """Leave out the arguments of an existing schedule for users who may not view them. They stay as they
        are, whatever such a user sends.
        """
        fieldsets = super().get_fieldsets(request, obj)
        if obj is None or self.has_view_arguments_permission(request):
            return fieldsets
        hidden = ("args", "kwargs")
        return [
            (name, {**options, "fields": [each for each in options["fields"] if each not in hidden]})
            for name, options in fieldsets
        ]

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Do not permit to delete what is declared in code or settings."""
        is_declared = obj is not None and obj.source != Schedule.Source.ADMIN and obj.retired_at is None
        return not is_declared and super().has_delete_permission(request, obj)

    def get_deleted_objects(self, objs: Any, request: HttpRequest) -> tuple[Any, Any, Any, Any]:
        """Return what a deletion would delete, without listing the runs of a schedule, which may be many.

        Django's own function also reads the database that the routers choose.
        """
        listed = list(objs)
        needed = {
            _("schedule “%(name)s”, which is declared in %(where)s")
            % {"name": schedule.pk, "where": schedule.get_source_display()}
            for schedule in listed
            if not self.has_delete_permission(request, schedule)
        }
        counts = {self.opts.verbose_name_plural: len(listed)}
        return [str(schedule) for schedule in listed], counts, needed, []

    def page_context(self, request: HttpRequest, obj: Any) -> dict[str, Any]:
        """Add the state of the schedule, buttons for the actions that this user may run on it now, and
        suggestions for the fields.
        """
        context = super().page_context(request, obj)
        context["pgqueue_suggestions"] = suggestions()
        if obj is None:
            return context
        if not self.has_change_permission(request, obj):  # then Django shows the values of the object
            vars(obj).update(shown_arguments(obj))
        fitting = [
            name
            for name, action in ACTIONS.items()
            if action.effect(obj).acts and self._may_on(request, action, obj)
        ]
        return context | {
            "pgqueue": summary(self.admin_site, request, self.database, obj),
            "pgqueue_trouble": Fleet(self.database).standstill if obj.is_active else "",
            "pgqueue_buttons": self.buttons(request, obj, fitting),
            "pgqueue_pause": PAUSE,
        }

    def save_model(self, request: HttpRequest, obj: Schedule, form: Any, change: bool) -> None:
        """Save in the database of this class, and only what the form has changed.

        Races: a worker that starts may have written a new declaration since the row was read, which must
        stay. A user may have created a schedule of the same name, which an INSERT does not overwrite.
        """
        if not change:
            obj.save(using=self.writes_to, force_insert=True)
            return
        with transaction.atomic(using=self.writes_to):
            locked = Schedule.objects.using(self.writes_to).select_for_update(no_key=True).get(pk=obj.pk)
            for name in form.changed_data:
                setattr(locked, name, getattr(obj, name))
            locked.save(using=self.writes_to)

    def ask_or_act(self, request: HttpRequest, name: str, rows: QuerySet[Schedule]) -> HttpResponse | None:
        """Say what would happen to each schedule; if that was confirmed, do it."""
        action, found, using = ACTIONS[name], list(rows), self.writes_to
        if not all(self._may_on(request, action, schedule) for schedule in found):
            raise PermissionDenied
        if not is_confirmed(request):
            effects, count = [action.effect(schedule) for schedule in found], len(found)
            text = ngettext("%(number)s schedule is selected.", "%(number)s schedules are selected.", count)
            length = Schedule._meta.get_field("pause_reason").max_length if name == "pause" else 0
            selected = text % {"number": formatting.number(count)}
            return self.ask(request, action.title, effects, found, selected=selected, reason_length=length)
        reason = request.POST.get("reason", "").replace("\0", "").strip() if name == "pause" else ""
        author, changed = request.user.get_username(), []
        for schedule in found:
            # Races: a worker that starts may write a new declaration now, and a user may delete the schedule.
            with transaction.atomic(using=using):
                locked = Schedule.objects.using(using).select_for_update(no_key=True).filter(pk=schedule.pk)
                if any(action.run(each, author, reason) for each in locked):
                    changed.append(schedule)
        message = action_words(action.label)
        if reason:
            message += " " + gettext("Reason: %(reason)s") % {"reason": reason}
        words = with_count(action.done, len(changed)) if changed else str(action.undone)
        self.note_and_tell(request, changed, message, words)
        return None

    def _may_on(self, request: HttpRequest, action: ScheduleAction, schedule: Schedule) -> bool:
        """Return whether this user may view this schedule, and change it if the action does so."""
        may_change = action.permission != "change" or self.has_change_permission(request, schedule)
        return may_change and self.has_view_permission(request, schedule)
