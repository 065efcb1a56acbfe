"""The admin of the queue: jobs, queues, schedules, workers, tasks, and an overview of all of them.

The classes can be registered on any site. A subclass with ``using = "alias"`` shows another database than the
one that the database routers choose. All changes are made with the public functions of the package. The
fields of a job are read-only; the action "Edit" changes what may change while a job waits.

    jobs.py        the list of jobs; job_fields.py their fields, job_actions.py their actions
    job_page.py    the page of a job; timeline.py and timeline_drawing.py its timeline, panels.py and
                   own_links.py what a project adds to it, clone.py and clone_form.py "Enqueue again",
                   task_runs.py the chart of its task
    visible.py     a search that finds only what is shown; cut_json.py arguments that are read in part
    batches.py     batches; batch_fields.py their state and numbers, batch_actions.py cancel and retry;
                   job_links.py what a job is tied to
    console.py     the bar that leads to all pages, and the frame of pages without a model; base.py has both
                   for the others; charts.py and sparkline.py draw figures over time
    ask.py         the confirmation page for actions on a few workers or pauses
    confirm.py     the confirmation page for actions on many jobs; effects.py what would happen in each state,
                   selection.py which jobs are selected; edit_form.py the new values of an edit;
                   outcome.py what the user is told; history.py who did what
    bulk.py        the task that runs an action on many jobs; bulk_order.py what it is told, bulk_walk.py its
                   way through the jobs, bulk_start.py where it runs
    overview.py    is the queue well?; overview_cures.py problems and what helps, overview_tiles.py,
                   overview_charts.py and overview_rows.py its parts, overview_pauses.py its buttons
    failure_pages.py  failures by group; failure_rows.py what they show, failure_block.py the block of
                   the overview, traces.py the part of a traceback in the project
    fleet.py       which workers are alive, by their heartbeats, and which queues they serve
    queues.py      queues and their settings; queue_list.py the list, queue_page.py what is above the
                   settings; both show queues without settings, too
    limits.py      limits of concurrency; job_limits.py those of a job, with its place in line
    pauses.py      what is paused; paused.py the same in sentences, for the banner and the pages of queues
    workers.py     workers; worker_page.py what one runs and has run, drain.py asks them to end
    schedules.py   schedules; schedule_fields.py the columns of the list, schedule_page.py the top of a page,
                   schedule_form.py the form, schedule_buttons.py and schedule_actions.py what can be done
    graph/         the drawing of a workflow
    stats.py       the addresses of the pages below; percentiles.py percentiles of the histograms in words
    task_list.py   how each task does; task_page.py one of them, task_policy.py its options in words,
                   span_charts.py and span_tabs.py the charts of tasks and queues, and their span
    database_page.py  locks, old transactions, dead rows and connections, and when to act
    payloads.py    a mixin for the admin of payload models; job_payloads.py the payload on the page of its job
    changelist.py  a list that stays fast with a long history; its filters.py and names.py
"""

from __future__ import annotations

from django.contrib import admin

from ..models import Job, JobBatch, JobStat, Limit, Pause, Queue, Schedule, Worker
from .batches import BatchAdmin
from .jobs import JobAdmin
from .limits import LimitAdmin
from .own_links import links_for
from .pauses import PauseAdmin
from .payloads import PayloadAdmin
from .queues import QueueAdmin
from .schedules import ScheduleAdmin
from .stats import JobStatAdmin
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
