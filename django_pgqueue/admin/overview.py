"""The overview: depth by queue and status, age, retries, failures, and the workers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from django.urls import reverse
from django.utils.translation import gettext as _

from ..models import Worker
from ..vitals import Vital, busy_text, queues_text
from . import display
from .console import console_page
from .depth import MOST_FAILURES, QueueDepth, depth
from .fleet import Fleet, state_badge
from .links import page_url
from .paused import paused

if TYPE_CHECKING:
    from django.http import HttpRequest
    from django.template.response import TemplateResponse

    from .base import DatabaseAdmin

__all__ = ["overview"]

MOST_WORKERS = 100


def overview(admin: DatabaseAdmin[Any], request: HttpRequest) -> TemplateResponse:
    """Return the page for a user who may view jobs. ``admin`` is the admin of jobs, with its site and
    database.
    """
    site = admin.admin_site
    fleet = Fleet(admin.database, busy=True)
    queues = depth(admin.database)
    pauses = paused(site, request, admin.database)
    prefix = f"admin:{admin.opts.app_label}_{admin.opts.model_name}"
    return console_page(
        admin,
        request,
        "admin/django_pgqueue/overview.html",
        _("Overview of the queues"),
        jobs_url=reverse(f"{prefix}_changelist", current_app=site.name),
        pgqueue_paused=pauses,
        trouble=fleet.trouble if any(queue.needs_workers for queue in queues) else "",
        queues=[{**_queue_row(queue, fleet), "paused": pauses.queues.get(queue.name)} for queue in queues],
        any_lost=any(queue.lost for queue in queues),
        workers=[
            {**_worker_row(worker), "url": page_url(site, request, Worker, "change", worker.pk)}
            for worker in fleet.workers[:MOST_WORKERS]
        ],
        more_workers=max(0, len(fleet.workers) - MOST_WORKERS),
    )


def _queue_row(queue: QueueDepth, fleet: Fleet) -> dict[str, Any]:
    attendance = fleet.of(queue.name)
    return {
        "name": queue.name,
        "ready": display.number(queue.ready),
        "attendance": attendance,
        "unattended": queue.needs_workers and not attendance.alive,
        "oldest": display.period(queue.oldest),
        "longest": display.period(queue.longest),
        "cells": _cells(queue),
    }


def _worker_row(worker: Any) -> dict[str, Any]:
    return {
        "worker": worker,
        "queues": queues_text(worker),
        "busy": busy_text(worker),
        "badge": state_badge(worker),
        "age": display.period(worker.age),
        "alarm": worker.vital in {Vital.SILENT, Vital.DEAD},
    }


def _cells(queue: QueueDepth) -> list[dict[str, Any]]:
    """Return the counts of a queue from left to right, each with a link to its jobs if a filter can show
    them.
    """

    def cell(count: int, *, lost: int = 0, alarm: bool = False, **filters: str) -> dict[str, Any]:
        query = urlencode({"queue": queue.name, **filters}) if filters else ""
        capped = alarm and count >= MOST_FAILURES
        text = display.number(count) + ("+" if capped else "")
        return {"text": text, "query": query if count else "", "alarm": alarm, "lost": lost}

    return [
        cell(queue.pending, status="pending"),
        cell(queue.retry, status="retry"),
        cell(queue.blocked, status="blocked"),
        cell(queue.running, status="running", lost=queue.lost),
        cell(queue.done_hour, status="done", finished="hour"),
        cell(queue.retried_hour),
        cell(queue.failed_hour, alarm=True, status="failed", finished="hour"),
        cell(queue.retried_day),
        cell(queue.failed_day, alarm=True, status="failed", finished="day"),
    ]
