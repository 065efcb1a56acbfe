from django.contrib import admin

from django_pgqueue.admin import PayloadAdmin

from .models import Invoice


@admin.register(Invoice)
class InvoiceAdmin(PayloadAdmin, admin.ModelAdmin):
    list_display = ("order", "language", "job_status", "job_link")
