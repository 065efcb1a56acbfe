"""The form of a schedule: the model's own checks, and what code or settings declare beside each field.

Its arguments are redacted, and what is left as it was shown keeps its stored value.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any
from zoneinfo import available_timezones

from django import forms
from django.core.exceptions import ValidationError
from django.utils.html import escape
from django.utils.translation import gettext as _

from ...discovery import known_tasks
from ...models import Schedule
from ...models.schedule import definition_of
from ...redaction import redact_call
from ..job_page.redacted_input import restored
from .actions import value_text

if TYPE_CHECKING:
    ModelForm = forms.ModelForm[Schedule]
else:
    ModelForm = forms.ModelForm

__all__ = ["SUGGESTIONS", "ScheduleForm", "shown_arguments", "suggestions"]

#: The fields with a list of suggestions, and the id of this list on the page.
SUGGESTIONS = {"task_path": "pgqueue-tasks", "timezone": "pgqueue-zones"}


class ScheduleForm(ModelForm):
    """Checks that the name is not used in the displayed database. The model checks everything else."""

    using: str

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name, place in SUGGESTIONS.items():
            if name in self.fields:
                self.fields[name].widget.attrs["list"] = place
        for name in ("args", "kwargs"):
            if name in self.fields:
                self.fields[name].widget.attrs["rows"] = 3
        self._stored = self.instance.args, self.instance.kwargs
        self._shown = shown_arguments(self.instance)
        if not self.instance._state.adding:
            self.initial.update(zip(("args", "kwargs"), self._shown, strict=True))
        if self.instance.declared is not None:
            self._show_declared(self.instance.declared)

    def clean_args(self) -> Any:
        """An empty field means that there are no arguments."""
        given = self.cleaned_data["args"]
        return [] if given is None else restored(given, self._shown[0], self._stored[0])

    def clean_kwargs(self) -> Any:
        """Do the same for keyword arguments."""
        given = self.cleaned_data["kwargs"]
        return {} if given is None else restored(given, self._shown[1], self._stored[1])

    def validate_unique(self) -> None:
        """Do what Django's method does, which would query the database that the routers choose."""
        name = self.cleaned_data.get("name")
        if name and Schedule.objects.using(self.using).filter(pk=name).exists():
            taken = ValidationError(_("A schedule with this name already exists."), code="unique")
            self.add_error("name", taken)

    def add_error(self, field: str | None, error: Any) -> None:
        """Say nothing of arguments that are not in the form: the user may not view them, nor their errors."""
        found = error.error_dict if field is None and hasattr(error, "error_dict") else {}
        if hidden := {"args", "kwargs"}.intersection(found) - set(self.fields):
            super().add_error("task_path", _("The task does not take the arguments of this schedule."))
            error = ValidationError({name: each for name, each in found.items() if name not in hidden})
        super().add_error(field, error)

    def _show_declared(self, declared: dict[str, Any]) -> None:
        here = definition_of(self.instance)
        for name, field in self.fields.items():
            if name in declared and declared[name] != here.get(name):
                text = _("Declared: %(value)s") % {"value": value_text(declared[name], name, self.instance)}
                text = escape(text)  # Django shows help texts as HTML, and the value may be an argument
                field.help_text = f"{text}. {field.help_text}" if field.help_text else f"{text}."


def shown_arguments(schedule: Schedule) -> tuple[Any, Any]:
    """Return the arguments, redacted. What is no list or dict, after a change in SQL, stays as it is."""
    args, kwargs, path = schedule.args, schedule.kwargs, schedule.task_path
    return (
        redact_call(args, {}, path)[0] if isinstance(args, list) else args,
        redact_call([], kwargs, path)[1] if isinstance(kwargs, dict) else kwargs,
    )


def suggestions() -> dict[str, list[str]]:
    """Return the suggestions by the id of their list: tasks that this process can find, and time zones."""
    return {
        SUGGESTIONS["task_path"]: list(known_tasks()),
        SUGGESTIONS["timezone"]: _zones(),
    }


@cache
def _zones() -> list[str]:
    return sorted(available_timezones())
