"""The admin of the queue: jobs, queues, workers, statistics, and a page that shows where everything stands.

The classes may be registered on any site, and with ``using = "alias"`` in a subclass they show another
database than the one that the routers name. Everything that is changed here goes through the same public
functions as elsewhere; nothing of a job can be edited.

    jobs.py        the list and the page of a job; job_fields.py how it looks, job_actions.py what may be done
    confirm.py     the page that asks before many jobs change; effects.py what would happen in each state,
                   selection.py which jobs they are
    overview.py    depth, age, failures and workers on one page; depth.py its figures
    fleet.py       which workers live, by their heartbeats, and which queues they serve
    queues.py      queues and their settings; queue_list.py the list, which shows queues without settings, too
    workers.py     workers and what they run
    stats.py       statistics; last_hour.py the table above them, percentiles.py what the histograms tell
    changelist.py  a list that stays quick however long the history is; filters.py and names.py likewise
"""

from __future__ import annotations

from django.contrib import admin

from ..models import Job, JobStat, Queue, Worker
from .jobs import JobAdmin
from .queues import QueueAdmin
from .stats import JobStatAdmin
from .workers import WorkerAdmin

__all__ = ["JobAdmin", "JobStatAdmin", "QueueAdmin", "WorkerAdmin"]

admin.site.register(Job, JobAdmin)
admin.site.register(Queue, QueueAdmin)
admin.site.register(Worker, WorkerAdmin)
admin.site.register(JobStat, JobStatAdmin)
