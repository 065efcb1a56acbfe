"""The admin of receipts, which shows their jobs. The other payload models have none."""

from __future__ import annotations

from django.contrib import admin

from django_pgqueue.admin import PayloadAdmin

from .models import Receipt


@admin.register(Receipt)
class ReceiptAdmin(PayloadAdmin, admin.ModelAdmin):  # type: ignore[type-arg]
    """As a project writes it."""

    list_display = ("email", "job_status", "job_link")
