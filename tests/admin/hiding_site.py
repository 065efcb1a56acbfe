"""An admin site whose class of jobs hides those of one queue from all but superusers."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import path

from django_pgqueue.admin import (
    BatchAdmin,
    JobAdmin,
    JobStatAdmin,
    LimitAdmin,
    PauseAdmin,
    QueueAdmin,
    ScheduleAdmin,
    WorkerAdmin,
)
from django_pgqueue.models import Job, JobBatch, JobStat, Limit, Pause, Queue, Schedule, Worker


class OwnJobAdmin(JobAdmin):
    """Hides the queue "hidden"."""

    def get_queryset(self, request: HttpRequest) -> QuerySet[Job]:
        """Return the jobs of this user."""
        jobs = super().get_queryset(request)
        user: Any = request.user
        return jobs if user.is_superuser else jobs.exclude(queue_name="hidden")


hiding_site = admin.AdminSite(name="admin")
hiding_site.register(Job, OwnJobAdmin)
hiding_site.register(JobBatch, BatchAdmin)
hiding_site.register(Queue, QueueAdmin)
hiding_site.register(Schedule, ScheduleAdmin)
hiding_site.register(Pause, PauseAdmin)
hiding_site.register(Limit, LimitAdmin)
hiding_site.register(Worker, WorkerAdmin)
hiding_site.register(JobStat, JobStatAdmin)

urlpatterns = [path("admin/", hiding_site.urls)]
