"""The form with the new values of an edit, on the confirmation page of the action. An empty field means that
the value stays as it is.
"""

from __future__ import annotations

from typing import Any

from django import forms
from django.core.validators import RegexValidator
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ...compat import InvalidTask
from ...models import Queue
from ...tasks import options
from .. import display


class EditForm(forms.Form):
    """The values to change. At least one is required."""

    priority = forms.IntegerField(
        label=gettext_lazy("Priority"),
        min_value=-100,
        max_value=100,
        required=False,
        help_text=gettext_lazy("From -100 to 100; higher priorities run first."),
    )
    run_after = forms.DateTimeField(
        label=gettext_lazy("Run after"),
        required=False,
        widget=forms.DateTimeInput(attrs={"type": "datetime-local", "step": 1}),
    )
    queue_name = forms.CharField(
        label=gettext_lazy("Queue"),
        required=False,
        max_length=100,
        validators=[
            validator for validator in Queue._meta.get_field("name").validators
            if isinstance(validator, RegexValidator)
        ],
    )  # fmt: skip

    def __init__(self, data: Any = None, initial: dict[str, Any] | None = None) -> None:
        super().__init__(data, initial=initial, label_suffix="")
        zone = _("In the time zone %(zone)s. A time in the past means now.") % {"zone": display.zone_name()}
        self.fields["run_after"].help_text = zone

    def clean(self) -> dict[str, Any]:
        """Require a value, and refuse a time that no job may have."""
        cleaned = super().clean() or self.cleaned_data
        if cleaned.get("run_after") is not None:
            try:
                cleaned["run_after"], _delay = options.run_after(cleaned["run_after"])
            except InvalidTask:
                self.add_error("run_after", _("Enter a time within 100 years."))
        if not self.errors and not self.values():
            self.add_error(None, _("Enter at least one value to change."))
        return cleaned

    def values(self) -> dict[str, Any]:
        """Return the values to change."""
        return {name: value for name, value in self.cleaned_data.items() if value not in (None, "")}

    def words(self) -> str:
        """Return the values in words, for the history of a job."""
        parts = [
            f"{self.fields[name].label}: {display.stored_time(value) if name == 'run_after' else value}"
            for name, value in self.values().items()
        ]
        return ", ".join(parts)
