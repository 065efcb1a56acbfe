"""The form of a copy of a job: its call, checked as ``enqueue()`` checks it, and where and when it runs."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any

from django import forms
from django.core.exceptions import ValidationError
from django.db import transaction
from django.forms.fields import InvalidJSONInput
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ...compat import InvalidTask
from ...definition import find_task
from ...exceptions import PgQueueError
from ...lifecycle.enqueue import enqueue
from ...redaction import redact_call
from .. import display
from ..bulk.edit_form import EditForm
from .redacted_input import restored

if TYPE_CHECKING:
    from ...definition import Task
    from ...models import Job

__all__ = ["CloneForm"]


class _Json(forms.JSONField):
    """A JSON value, indented."""

    def prepare_value(self, value: Any) -> Any:
        """Return what the field shows. What is no JSON is shown as it was entered."""
        if isinstance(value, InvalidJSONInput):
            return value
        return json.dumps(value, indent=2, ensure_ascii=False)


class CloneForm(EditForm):
    """The values of a new job. The fields of ``EditForm`` are those of the job at first."""

    args = _Json(label=gettext_lazy("Arguments"), required=False, widget=forms.Textarea(attrs={"rows": 4}))
    kwargs = _Json(
        label=gettext_lazy("Keyword arguments"), required=False, widget=forms.Textarea(attrs={"rows": 6})
    )
    field_order = ("args", "kwargs", "queue_name", "priority", "run_after")

    def __init__(self, job: Job, using: str, data: Any = None) -> None:
        super().__init__(data)
        self.job, self.using = job, using
        self._shown = redact_call(job.args, job.kwargs, job.task_path)
        self.initial = {
            "args": self._shown[0],
            "kwargs": self._shown[1],
            "queue_name": job.queue_name,
            "priority": job.priority,
        }
        zone = display.zone_name()
        self.fields["run_after"].help_text = _("In the time zone %(zone)s. Empty: now.") % {"zone": zone}

    def clean_args(self) -> list[Any]:
        """Require a list. What is redacted and left as it is stands for what is stored."""
        args: list[Any] = self._checked("args", list, self._shown[0], self.job.args)
        return args

    def clean_kwargs(self) -> dict[str, Any]:
        """Require an object."""
        kwargs: dict[str, Any] = self._checked("kwargs", dict, self._shown[1], self.job.kwargs)
        return kwargs

    def enqueue(self) -> Job | None:
        """Enqueue the copy, if all values are right. What ``enqueue()`` raises is an error of the form."""
        if not self.is_valid():
            return None
        try:
            return self._enqueue(self.cleaned_data)
        except (PgQueueError, InvalidTask, TypeError, ValueError) as error:
            self.add_error(None, str(error))
        return None

    def _checked(self, name: str, wanted: type[Any], shown: Any, stored: Any) -> Any:
        given = self.cleaned_data[name]
        value = restored(wanted() if given is None else given, shown, stored)
        if not isinstance(value, wanted):
            words = _("Enter a JSON list.") if wanted is list else _("Enter a JSON object.")
            raise ValidationError(words, code="invalid")
        return value

    def _enqueue(self, values: dict[str, Any]) -> Job:
        """Enqueue the job in the database to write to. A refused statement leaves nothing behind."""
        alias = self.using
        task: Task[..., Any] = find_task(self.job.task_path).using(
            database=alias,
            queue_name=values["queue_name"] or self.job.queue_name,
            priority=self.job.priority if values["priority"] is None else values["priority"],
            run_after=values["run_after"],
            metadata=self.job.metadata,
        )
        call = partial(enqueue, task, *values["args"], **values["kwargs"])
        with transaction.atomic(using=alias):
            return call()
