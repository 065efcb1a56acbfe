"""Forms with values of jobs: the new values of an edit, and the values of a copy.

A copy is a new call of the task as the code declares it now: it has the policy of today, its keys are
computed from its arguments, and it has neither the batch nor the parents of the job. A job with a payload has
no arguments to copy: add a row of its model instead.
"""

from __future__ import annotations

import json
from typing import Any

from django import forms
from django.contrib import messages
from django.core.validators import RegexValidator
from django.db import transaction
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.translation import gettext as _, gettext_lazy

from ...compat import InvalidTask
from ...exceptions import PgQueueError
from ...jobs.enqueue import enqueue
from ...models import Job, Queue
from ...tasks import options
from ...tasks.task import Task, find_task
from .. import display
from ..console import console_page, hides
from ..job_page.formatter import ArgumentsForm, payload_model_of


class EditForm(forms.Form):
    """The values to change, at least one. An empty field means that the value stays as it is."""

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


def clone_page(admin: Any, request: HttpRequest, job: Job) -> HttpResponse:
    """Show the form, or enqueue the copy."""
    if payload_model_of(job) is not None:
        words = _("The call of this job is a row of its payload. Add a row instead.")
        admin.message_user(request, words, messages.WARNING)
        return HttpResponseRedirect(admin.address("change", job.pk))
    data = request.POST if request.method == "POST" else None
    form = CloneForm(job, admin.writes_to, data, is_restricted=hides(admin.get_queryset(request)))
    made = form.enqueue() if form.is_bound else None
    if made is None:
        back = admin.address("change", job.pk)
        template, title = "admin/django_pgqueue/job/clone.html", _("Enqueue again")
        return console_page(admin, request, template, title, original=job, form=form, back=back)
    level = messages.WARNING
    if made.enqueue_outcome == "existing":
        words = _("No job was enqueued: job %(id)d has the unique key of this call.")
    elif made.enqueue_outcome == "replaced":  # on_conflict="replace"
        admin.log_change(request, made, _("Got the values of a copy of job %(id)d.") % {"id": job.pk})
        words = _(
            "No job was enqueued: job %(id)d, which has the unique key of this call, has these values now."
        )
    else:
        admin.log_change(request, job, _("Enqueued again as job %(id)d.") % {"id": made.pk})
        admin.log_addition(request, made, _("Enqueued again from job %(id)d.") % {"id": job.pk})
        words, level = _("Job %(id)d was enqueued."), messages.SUCCESS
    admin.message_user(request, words % {"id": made.pk}, level)
    return HttpResponseRedirect(admin.address("change", made.pk))


class _Indented(json.JSONEncoder):
    """Shows a JSON value on several lines."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{**options, "indent": 2})


def _json_field(label: Any, rows: int) -> forms.JSONField:
    area = forms.Textarea(attrs={"rows": rows})
    return forms.JSONField(label=label, required=False, encoder=_Indented, widget=area)


class CloneForm(ArgumentsForm, EditForm):
    """The values of a new job, checked as ``enqueue()`` checks them. They start as the values of the job."""

    args = _json_field(gettext_lazy("Arguments"), rows=4)
    kwargs = _json_field(gettext_lazy("Keyword arguments"), rows=6)
    field_order = ("args", "kwargs", "queue_name", "priority", "run_after")

    def __init__(self, job: Job, using: str, data: Any = None, *, is_restricted: bool = False) -> None:
        super().__init__(data)
        self.job, self.using, self._is_restricted = job, using, is_restricted
        self.initial = {"queue_name": job.queue_name, "priority": job.priority}
        self.show_arguments(job)
        zone = display.zone_name()
        self.fields["run_after"].help_text = _("In the time zone %(zone)s. Empty: now.") % {"zone": zone}

    def enqueue(self) -> Job | None:
        """Enqueue the copy, if all values are right. What ``enqueue()`` raises is an error of the form."""
        if not self.is_valid():
            return None
        values, job = self.cleaned_data, self.job
        try:
            task: Task[..., Any] = find_task(job.task_path).using(
                database=self.using,
                queue_name=values["queue_name"] or job.queue_name,
                priority=job.priority if values["priority"] is None else values["priority"],
                run_after=values["run_after"],
                metadata=job.metadata,
            )
            with transaction.atomic(using=self.using):  # a refused statement leaves nothing behind
                made = enqueue(task, *values["args"], **values["kwargs"])
                # With on_conflict="replace" it may be a hidden job that has changed.
                if self._is_restricted and made.enqueue_outcome != "created":
                    raise ValueError(_("No job was enqueued: another job has the unique key of this call."))
        except (PgQueueError, InvalidTask, TypeError, ValueError) as error:
            self.add_error(None, str(error))
            return None
        return made
