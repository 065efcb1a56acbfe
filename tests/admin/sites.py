"""A second admin site that shows another database."""

from __future__ import annotations

from django.contrib import admin
from django.urls import path

from django_pgqueue.admin import (
    JobAdmin,
    JobStatAdmin,
    LimitAdmin,
    PauseAdmin,
    QueueAdmin,
    ScheduleAdmin,
    WorkerAdmin,
)
from django_pgqueue.models import Job, JobStat, Limit, Pause, Queue, Schedule, Worker


class OtherJobAdmin(JobAdmin):
    """The jobs of another database."""

    using = "other"


class OtherQueueAdmin(QueueAdmin):
    """The queues of another database."""

    using = "other"


class OtherScheduleAdmin(ScheduleAdmin):
    """The schedules of another database."""

    using = "other"


class OtherPauseAdmin(PauseAdmin):
    """The pauses of another database."""

    using = "other"


class OtherLimitAdmin(LimitAdmin):
    """The limits of another database."""

    using = "other"


class OtherWorkerAdmin(WorkerAdmin):
    """The workers of another database."""

    using = "other"


class OtherJobStatAdmin(JobStatAdmin):
    """The statistics of another database."""

    using = "other"


other_site = admin.AdminSite(name="ops")
other_site.register(Job, OtherJobAdmin)
other_site.register(Queue, OtherQueueAdmin)
other_site.register(Schedule, OtherScheduleAdmin)
other_site.register(Pause, OtherPauseAdmin)
other_site.register(Limit, OtherLimitAdmin)
other_site.register(Worker, OtherWorkerAdmin)
other_site.register(JobStat, OtherJobStatAdmin)

urlpatterns = [path("admin/", admin.site.urls), path("ops/", other_site.urls)]
