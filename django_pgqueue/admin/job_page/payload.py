"""The payload of a job as it is shown on its page, for users who may view rows of its model."""

from __future__ import annotations

import json
from types import NoneType
from typing import TYPE_CHECKING, Any

from django.apps import apps
from django.contrib.admin.utils import display_for_field
from django.core.exceptions import ValidationError
from django.utils.text import Truncator, capfirst
from django.utils.translation import gettext as _

from ...models import DeclaredTask
from ...payloads.synchronize import payload_models
from ...redaction import FAILED, REDACTED, redact, restore
from ..display import page_url
from .links import links_of_row

if TYPE_CHECKING:
    from django.contrib.admin import AdminSite
    from django.db.models import Model
    from django.http import HttpRequest

    from ...models import Job

MOST_CHARACTERS = 500


def shown_payload(site: AdminSite, request: HttpRequest, job: Any, *, full: bool) -> dict[str, Any] | None:
    """Return what the template shows. None: the job has arguments, or this user may not view its payload.
    Unless ``full``, there are no values: this user may not view arguments.
    """
    model = job.payload_model
    if model is None or not _may_view(site, request, model):
        return None
    row: Any = model._base_manager.using(job._state.db).filter(pk=job.pk).first()
    url = page_url(site, request, model, "change", job.pk) if row is not None else ""
    shown = model._meta.concrete_fields[1:] if row is not None and full else ()
    fields = [_field(row, field, job.task_path) for field in shown]
    return {
        "title": capfirst(model._meta.verbose_name),
        "fields": fields,
        "url": url,
        "links": links_of_row(row) if full else [],
        "is_gone": row is None,
    }


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


def _may_view(site: AdminSite, request: HttpRequest, model: type[Model]) -> bool:
    if site.is_registered(model):
        return site.get_model_admin(model).has_view_permission(request)
    meta = model._meta
    return request.user.has_perms([f"{meta.app_label}.view_{meta.model_name}"])


def _field(row: Any, field: Any, task_path: str) -> dict[str, str]:
    """Return the name and the redacted value of a field; of a foreign key, its key, which needs no query."""
    value = getattr(row, field.attname)
    plain = value if isinstance(value, (str, int, float, list, dict, NoneType)) else str(value)
    shown = redact({field.name: plain}, task_path)
    shown = shown.get(field.name, REDACTED) if isinstance(shown, dict) else shown
    if shown != plain:
        text = shown if isinstance(shown, str) else json.dumps(shown, ensure_ascii=False)
    elif field.is_relation and value is not None:
        text = str(value)
    else:
        text = display_for_field(value, field, "-")
    return {"label": capfirst(str(field.verbose_name)), "value": Truncator(str(text)).chars(MOST_CHARACTERS)}


# ----------------------------------------------------------------------------
# Forms that are filled with redacted values: what the user leaves as it was shown keeps its stored value.


def restored(given: Any, shown: Any, stored: Any) -> Any:
    """Return the value that a form means. Raise ValidationError if a mark is left that stands for nothing, as
    in a list with an element more: it would be stored like a value.
    """
    value = restore(given, shown, stored)
    for mark in (REDACTED, FAILED):
        if mark in json.dumps(value) and mark not in json.dumps(stored):
            words = _("Replace each “%(mark)s” by a value: it is not clear which one it stands for.")
            raise ValidationError(words, code="redacted", params={"mark": mark})
    return value
