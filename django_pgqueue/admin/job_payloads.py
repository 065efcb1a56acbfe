"""The payload of a job as it is shown on its page, for users who may view rows of its model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.apps import apps
from django.contrib.admin.utils import display_for_field
from django.utils.text import Truncator, capfirst

from ..models import PayloadTask
from ..payloads.synchronize import payload_models
from .links import page_url

if TYPE_CHECKING:
    from django.contrib.admin import AdminSite
    from django.db.models import Model
    from django.http import HttpRequest

    from ..models import Job

__all__ = ["shown_payload"]

MOST_CHARACTERS = 500


def shown_payload(site: AdminSite, request: HttpRequest, job: Job) -> dict[str, Any] | None:
    """Return what the template shows. None: the job has arguments, or this user may not view its payload."""
    model = _model_of(job)
    if model is None or not _may_view(site, request, model):
        return None
    row: Any = model._base_manager.using(job._state.db).filter(pk=job.pk).first()
    url = page_url(site, request, model, "change", job.pk) if row is not None else ""
    fields = [] if row is None else [_field(row, field) for field in model._meta.concrete_fields[1:]]
    return {"title": capfirst(model._meta.verbose_name), "fields": fields, "url": url}


def _model_of(job: Job) -> type[Model] | None:
    """Return the model of the payload of a job. For jobs with arguments, nothing is asked."""
    if job.args or job.kwargs or not payload_models():
        return None
    declared = PayloadTask.objects.using(job._state.db).filter(task_path=job.task_path)
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


def _field(row: Any, field: Any) -> dict[str, str]:
    """Return the name and the value of a field; of a foreign key, its value, which needs no query."""
    value = getattr(row, field.attname)
    text = str(value) if field.is_relation and value is not None else display_for_field(value, field, "-")
    return {"label": capfirst(str(field.verbose_name)), "value": Truncator(str(text)).chars(MOST_CHARACTERS)}
