"""An admin site on which a project has replaced the class of statistics by Django's own."""

from __future__ import annotations

from django.contrib import admin
from django.urls import path

from django_pgqueue.admin import JobAdmin
from django_pgqueue.models import Job, JobStat


class PlainSite(admin.AdminSite):
    """A class of its own, because an order for many jobs names the class of its site."""


plain_site = PlainSite()
plain_site.register(Job, JobAdmin)
plain_site.register(JobStat, admin.ModelAdmin)

urlpatterns = [path("admin/", plain_site.urls)]
