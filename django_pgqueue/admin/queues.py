"""Queues: their settings, which may be edited."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast

from django import forms
from django.core.exceptions import ValidationError
from django.utils.translation import gettext_lazy as _

from ..models import Queue
from .base import DatabaseAdmin

if TYPE_CHECKING:
    from django.db.models import Model
    from django.http import HttpRequest

    ModelForm = forms.ModelForm[Queue]
else:
    ModelForm = forms.ModelForm

__all__ = ["QueueAdmin"]


class QueueForm(ModelForm):
    """Settings that make sense, and a name that is free in the database that is shown."""

    using: str

    def clean(self) -> dict[str, Any]:
        """Refuse times below zero, and a ceiling below the first wait."""
        cleaned = super().clean() or self.cleaned_data
        for name in ("keep_done", "keep_failed"):
            kept = cleaned.get(name)
            if kept is not None and kept < timedelta(0):
                self.add_error(name, _("Zero or more."))
        base, ceiling = cleaned.get("backoff_base"), cleaned.get("backoff_ceiling")
        if base is not None and ceiling is not None and ceiling < base:
            self.add_error("backoff_ceiling", _("The longest wait is not shorter than the first."))
        return cleaned

    def validate_unique(self) -> None:
        """Like Django's, which would ask the database of the routers."""
        name = self.cleaned_data.get("name")
        if name and Queue.objects.using(self.using).filter(pk=name).exists():
            taken = ValidationError(_("There is a queue of this name already."), code="unique")
            self.add_error("name", taken)


class QueueAdmin(DatabaseAdmin[Queue]):
    """What is empty is as ``PGQUEUE`` says; a queue without a row here works as well."""

    form = QueueForm
    list_display = ("name", "keep_done", "keep_failed", "backoff_base", "backoff_ceiling")
    search_fields = ("name",)
    fieldsets = (
        (None, {"fields": ("name",)}),
        (_("History"), {"fields": ("keep_done", "keep_failed")}),
        (_("Waits before a retry"), {"fields": ("backoff_base", "backoff_ceiling")}),
    )

    def get_form(
        self, request: HttpRequest, obj: Queue | None = None, change: bool = False, **kwargs: Any
    ) -> type[ModelForm]:
        """The form of this database."""
        form = cast("type[QueueForm]", super().get_form(request, obj, change=change, **kwargs))
        form.using = self.database
        return form

    def get_readonly_fields(self, request: HttpRequest, obj: Model | None = None) -> tuple[str, ...]:
        """The name stays: jobs bear it."""
        return () if obj is None else ("name",)

    def save_model(self, request: HttpRequest, obj: Queue, form: Any, change: bool) -> None:
        """Save where this class looks."""
        obj.save(using=self.using)

    def delete_model(self, request: HttpRequest, obj: Queue) -> None:
        """Delete where this class looks; the queue goes on with the defaults."""
        obj.delete(using=self.using)
