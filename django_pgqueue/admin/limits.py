"""Limits: how many jobs may run at once, what the code declares, and how many run now. Numbers can be
changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from django import forms
from django.contrib import admin
from django.core.exceptions import ValidationError
from django.db import router
from django.db.models import IntegerField
from django.db.models.expressions import RawSQL
from django.utils.translation import gettext_lazy as _

from ..lifecycle.limits import set_limit
from ..models import Limit
from . import display
from .base import DatabaseAdmin

if TYPE_CHECKING:
    from django.db.models import QuerySet
    from django.http import HttpRequest

    ModelForm = forms.ModelForm[Limit]
else:
    ModelForm = forms.ModelForm

__all__ = ["LimitAdmin"]

# The keys of a limit stand together in the index, because they are compared byte by byte: "0" follows the
# slash.
_BUSY = """
    (SELECT count(*) FROM pgqueue_job_live AS job WHERE job.status = 'running' AND CASE
        WHEN pgqueue_limit.name = '*' THEN true
        WHEN pgqueue_limit.name LIKE 'queue:%%' THEN job.queue_name = substr(pgqueue_limit.name,
        length('queue:') + 1) ELSE job.limit_key = pgqueue_limit.name
            OR job.limit_key > pgqueue_limit.name || '/' AND job.limit_key < pgqueue_limit.name || '0'
    END)
"""


class LimitForm(ModelForm):
    """Checks a limit, and that its name is not used in the displayed database."""

    using: str

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        declared = self.instance.declared
        if declared is not None and "running" in self.fields:
            self.fields["running"].required = False
            self.fields["running"].help_text = _("Empty: as the code declares (%(number)d).") % {
                "number": declared
            }

    def clean(self) -> dict[str, Any]:
        """Refuse a limit of a queue that does not let jobs wait."""
        cleaned = super().clean() or self.cleaned_data
        name = cleaned.get("name") or self.instance.pk or ""
        if (name == "*" or name.startswith("queue:")) and cleaned.get("on_conflict", "wait") != "wait":
            self.add_error("on_conflict", _("Jobs always wait for the limit of a queue or of all jobs."))
        return cleaned

    def validate_unique(self) -> None:
        """Do what Django's method does, which would query the database that the routers choose."""
        name = self.cleaned_data.get("name")
        if name and Limit.objects.using(self.using).filter(pk=name).exists():
            taken = ValidationError(_("A limit with this name already exists."), code="unique")
            self.add_error("name", taken)


class LimitAdmin(DatabaseAdmin[Limit]):
    """Limits that the code declares can be changed, and set back to what it declares. Others can also be
    deleted."""

    form = LimitForm
    list_display = ("name", "allowed", "busy", "on_conflict", "origin")
    search_fields = ("name",)
    sortable_by = ()
    ordering = ("name",)
    actions = None
    fields = ("name", "running", "on_conflict")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Limit]:
        """The limits, with the number of jobs that hold their slots."""
        return (
            super()
            .get_queryset(request)
            .annotate(
                busy_now=RawSQL(_BUSY, (), IntegerField())  # noqa: S611 - a constant
            )
        )

    @admin.display(description=_("jobs at once"))
    def allowed(self, limit: Limit) -> str:
        """How many jobs may run at once, for each key."""
        return display.number(limit.running)

    @admin.display(description=_("running, all keys"))
    def busy(self, limit: Any) -> str:
        """How many jobs of all of its keys run now."""
        return display.number(limit.busy_now)

    @admin.display(description=_("source"))
    def origin(self, limit: Limit) -> str:
        """Where the number comes from."""
        if limit.declared is None:
            return str(_("set by hand"))
        if limit.is_overridden:
            return str(_("set by hand; the code declares %(number)d") % {"number": limit.declared})
        return str(_("declared in code"))

    def get_form(
        self, request: HttpRequest, obj: Limit | None = None, change: bool = False, **kwargs: Any
    ) -> type[ModelForm]:
        """Return the form for this database."""
        form = cast("type[LimitForm]", super().get_form(request, obj, change=change, **kwargs))
        form.using = self.database
        return form

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        """Make the name of an existing limit read-only. What happens without room is up to the code that
        declares it."""
        if obj is None:
            return ()
        return ("name",) if obj.declared is None else ("name", "on_conflict", "origin")

    def get_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        """Show what the code declares, if it declares something."""
        return (
            (*self.fields, "origin") if obj is not None and obj.declared is not None else tuple(self.fields)
        )

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Do not permit it for a limit that the code declares: the next worker would write it again."""
        return super().has_delete_permission(request, obj) and (obj is None or obj.declared is None)

    def save_model(self, request: HttpRequest, obj: Limit, form: Any, change: bool) -> None:
        """Set the limit in the database of this class. Without a number, go back to what the code
        declares."""
        conflict: Any = obj.on_conflict if "on_conflict" in form.cleaned_data else None
        running = form.cleaned_data.get("running")
        set_limit(obj.pk, running, on_conflict=None if running is None else conflict, using=self.writes_to)

    def delete_model(self, request: HttpRequest, obj: Limit) -> None:
        """Delete the limit, and release the lines of its keys as far as one job may run."""
        set_limit(obj.pk, None, using=self.writes_to)

    @property
    def writes_to(self) -> str:
        """The alias to write to."""
        return self.using or router.db_for_write(Limit)
