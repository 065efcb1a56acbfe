"""How the values of a job are shown on its page: redacted, without what its reader may not see, and with
links to the pages that this user may view.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

from django import forms
from django.apps import apps
from django.contrib.admin import AdminSite
from django.core.exceptions import ValidationError
from django.db.models import Model
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.translation import gettext as _

from ...encoding import MAX_BIGINT, whole_number
from ...maintenance.payloads import payload_models
from ...models import DeclaredTask, Job, Worker
from ...redaction import FAILED, REDACTED, redact, redact_call, redact_text, restore
from ..console import hidden_of, page_url
from ..display import json_value, linked, short_name


class Section(NamedTuple):
    """A part of a page that is a table (``section.html``), or ``empty``, with a note below. The first cell of
    each row is its head. The column ``hidden`` is shown only if the browser is in another time zone.
    """

    title: Any
    columns: Sequence[Any]
    rows: Sequence[Sequence[Any]]
    note: Any = ""
    id: str = ""
    empty: str = ""
    hidden: int | None = None


class Formatter:
    """Formats what belongs to a job. ``full``: whether the user may view arguments and results."""

    def __init__(self, site: AdminSite, request: HttpRequest, job: Job, *, full: bool) -> None:
        self.site, self.request, self.job, self.full = site, request, job, full
        self.alias = str(job._state.db)

    def url(self, model: type[Model], page: str, *arguments: Any) -> str:
        """Return the URL of a page; empty if this user may not view it, or not see the job."""
        url = page_url(self.site, self.request, model, page, *arguments)
        is_hidden = url and model is Job and hidden_of(self.site, self.request, self.alias, arguments)
        return "" if is_hidden else url

    def link(self, model: type[Model], key: Any, text: Any) -> str:
        """Return a link to a row, or only the text for a user who may not view it."""
        return linked(self.url(model, "change", key), text)

    def text(self, text: Any) -> str:
        """Return a text, redacted."""
        return redact_text(str(text or ""), self.job.task_path)

    def json(self, value: Any) -> str:
        """Return a JSON value, redacted; empty for None, and for users who may not view results."""
        if value is None or not self.full:
            return ""
        return json_value(redact(value, self.job.task_path))

    def worker(self, key: Any) -> str:
        """Return the name of a worker, or a short form of its id if it no longer exists."""
        number = _worker_id(key)
        if number is None:
            return ""
        if worker := self._workers.get(number):
            return self.link(Worker, worker.pk, str(worker))
        gone = _("This worker no longer exists.")
        return format_html('<span title="{}">{}</span>', gone, short_name(number))

    @cached_property
    def _workers(self) -> dict[int, Worker]:
        """The workers of all attempts that still exist."""
        stored = [self.job.worker, *(error.get("worker") for error in self.job.errors)]
        keys = {key for each in stored if (key := _worker_id(each)) is not None}
        return Worker.objects.using(self.alias).in_bulk(list(keys))


def _worker_id(key: Any) -> int | None:
    """Return the id of a worker, which is text in the errors of a job; None if it is invalid."""
    return whole_number(str(key), -MAX_BIGINT - 1)


def payload_model_of(job: Job) -> type[Model] | None:
    """Return the model of the payload of a job. For jobs with arguments, nothing is asked."""
    if job.args or job.kwargs or not payload_models():
        return None
    declared = DeclaredTask.objects.using(job._state.db).filter(task_path=job.task_path)
    label = declared.values_list("model", flat=True).first()
    try:
        return None if label is None else apps.get_model(label)
    except LookupError:  # another project shares the database
        return None


def shown_arguments(row: Any) -> dict[str, Any]:
    """Return the arguments of a job or a schedule, redacted. What is no list or object, because SQL has
    changed it, stays as it is.
    """
    args, kwargs, path = row.args, row.kwargs, row.task_path
    return {
        "args": redact_call(args, {}, path)[0] if isinstance(args, list) else args,
        "kwargs": redact_call([], kwargs, path)[1] if isinstance(kwargs, dict) else kwargs,
    }


class ArgumentsForm(forms.BaseForm):
    """A part of a form: arguments are shown redacted, and ones that are left so keep their stored value."""

    def show_arguments(self, row: Any) -> None:
        """Fill in the arguments of a job or a schedule."""
        self._stored = {"args": row.args, "kwargs": row.kwargs}
        self._shown = shown_arguments(row)
        self.initial = {**self.initial, **self._shown}

    def clean_args(self) -> Any:
        """Require a list. An empty field means that there are no arguments."""
        return self._restored("args", [], _("Enter a JSON list."))

    def clean_kwargs(self) -> Any:
        """Require an object."""
        return self._restored("kwargs", {}, _("Enter a JSON object."))

    def _restored(self, name: str, empty: Any, words: str) -> Any:
        given = self.cleaned_data[name]
        value = restore(empty if given is None else given, self._shown[name], self._stored[name])
        # A mark that is left stands for nothing, as in a list with an element more.
        for mark in (REDACTED, FAILED):
            if mark in json.dumps(value) and mark not in json.dumps(self._stored[name]):
                left = _("Replace each “%(mark)s” by a value: it is not clear which one it stands for.")
                raise ValidationError(left, code="redacted", params={"mark": mark})
        if not isinstance(value, type(empty)):
            raise ValidationError(words, code="invalid")
        return value
