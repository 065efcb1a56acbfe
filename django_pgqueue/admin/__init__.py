"""The admin of the queue: jobs, queues, schedules, workers, tasks, and an overview of all of them.

The classes can be registered on any site. A subclass with ``using = "alias"`` shows another database than the
one that the database routers choose. All changes are made with the public functions of the package. The
fields of a job are read-only; the action "Edit" changes what may change while a job waits.

    base         what all pages have: the database, permissions, a time limit, no control characters
    console      visible jobs, URLs, the bar to all pages, the frame of pages without a model, what is paused
    display      values, times, names and texts, in the same way everywhere
    lists        lists that stay fast with a long history
    shards       the shard that a page shows, and lists of all shards
    charts       figures as drawings
    overview     is the queue well?
    jobs         the list of jobs; job_page is the page of one
    bulk         actions on jobs, few or a million
    failures     failures by group
    batches      batches; workflow draws one
    queues, workers, tasks, schedules   what their names say
    limits       limits and pauses: what holds jobs back
    database_page   locks, old transactions, dead rows and connections, and when to act
    ask          buttons, the page that asks for confirmation, and who did what
    payloads     a mixin for the admin of payload models
"""

from __future__ import annotations

from django.contrib import admin

from ..models import Job, JobBatch, JobStat, Limit, Pause, Queue, Schedule, Worker
from .batches import BatchAdmin
from .job_page.page import links_for
from .jobs.admin import JobAdmin
from .limits import LimitAdmin, PauseAdmin
from .payloads import PayloadAdmin
from .queues import QueueAdmin
from .schedules.admin import ScheduleAdmin
from .tasks import JobStatAdmin
from .workers import WorkerAdmin

__all__ = [
    "BatchAdmin",
    "JobAdmin",
    "JobStatAdmin",
    "LimitAdmin",
    "PauseAdmin",
    "PayloadAdmin",
    "QueueAdmin",
    "ScheduleAdmin",
    "WorkerAdmin",
    "links_for",
]

admin.site.register(Job, JobAdmin)
admin.site.register(JobBatch, BatchAdmin)
admin.site.register(Queue, QueueAdmin)
admin.site.register(Pause, PauseAdmin)
admin.site.register(Schedule, ScheduleAdmin)
admin.site.register(Limit, LimitAdmin)
admin.site.register(Worker, WorkerAdmin)
admin.site.register(JobStat, JobStatAdmin)
