"""``PayloadAdmin``: a mixin for the admin of a payload model, which shows the job of each row.

    class ReceiptAdmin(PayloadAdmin, admin.ModelAdmin):
        list_display = ("email", "job_status", "job_link")

The status comes from a subquery, because a join would leave out rows whose job is no longer kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.db.models import OuterRef, QuerySet, Subquery, Value
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from ..models import Job
from . import display
from .console import absent_text, page_url, site_url, visible_jobs

if TYPE_CHECKING:
    Base = admin.ModelAdmin[Any]
else:
    Base = object


class PayloadAdmin(Base):
    """Adds ``job_status`` and ``job_link``: to the page of a row, and for ``list_display``."""

    class Media:
        css = {"all": ["django_pgqueue/admin.css"]}

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Add to the rows the status of the job, why it waits, and whether this user may view it."""
        rows: QuerySet[Any] = super().get_queryset(request)
        job = visible_jobs(self.admin_site, request, rows.db).filter(pk=OuterRef("pk"))
        annotated: QuerySet[Any] = rows.annotate(
            pgqueue_status=Subquery(job.values("status")[:1]),
            pgqueue_reason=Subquery(job.values("waiting_reason")[:1]),
            pgqueue_absent=Value(absent_text(self.admin_site, request)),
            pgqueue_linked=Value(bool(page_url(self.admin_site, request, Job, "changelist"))),
        )
        return annotated

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        """Add the fields of the job to the fields that cannot be edited."""
        return [*super().get_readonly_fields(request, obj), "job_status", "job_link"]

    def get_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        """Show the job first. A new row has none."""
        fields = [name for name in super().get_fields(request, obj) if name not in ("job_status", "job_link")]
        return fields if obj is None else [("job_status", "job_link"), *fields]

    @admin.display(description=_("status of the job"), ordering="pgqueue_status")
    def job_status(self, row: Any) -> str:
        """The status of the job, and below it why it waits."""
        if row.pgqueue_status is None:
            return str(row.pgqueue_absent)
        badge = display.status_badge(row.pgqueue_status)
        return display.with_more(badge, display.breakable(row.pgqueue_reason or ""))

    @admin.display(description=_("job"), ordering="pk")
    def job_link(self, row: Any) -> str:
        """The id of the job, with a link for users who may view it."""
        if row.pgqueue_status is None or not row.pgqueue_linked:
            return str(row.pk)
        return display.linked(site_url(self.admin_site, "django_pgqueue_job_change", row.pk), row.pk)
