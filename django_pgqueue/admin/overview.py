"""The page "Queues": depth by queue and status, age, retries, failures, and the workers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.translation import gettext_lazy as _

from ..models import Worker
from . import display
from .depth import MOST_FAILURES, QueueDepth, depth
from .workers import is_silent, with_vitals

if TYPE_CHECKING:
    from django.http import HttpRequest

    from .base import DatabaseAdmin

__all__ = ["overview"]

MOST_WORKERS = 100


def overview(admin: DatabaseAdmin[Any], request: HttpRequest) -> TemplateResponse:
    """The page for a user who may see jobs; ``admin`` is that of jobs, and says which site and database."""
    alias = admin.database
    workers = list(with_vitals(Worker.objects.using(alias)).order_by("host", "pid")[: MOST_WORKERS + 1])
    prefix = f"admin:{admin.opts.app_label}_{admin.opts.model_name}"
    context = {
        **admin.admin_site.each_context(request),
        "title": _("Queues"),
        "opts": admin.opts,
        "media": admin.media,
        "jobs_url": reverse(f"{prefix}_changelist", current_app=admin.admin_site.name),
        "queues": [
            {"depth": queue, "oldest": display.period(queue.oldest), "cells": _cells(queue)}
            for queue in depth(alias)
        ],
        "workers": [
            {"worker": worker, "age": display.period(worker.age), "silent": is_silent(worker)}
            for worker in workers[:MOST_WORKERS]
        ],
        "more_workers": len(workers) > MOST_WORKERS,
    }
    request.current_app = admin.admin_site.name
    return TemplateResponse(request, "admin/django_pgqueue/overview.html", context)


def _cells(queue: QueueDepth) -> list[dict[str, Any]]:
    """The counts of a queue from left to right, each with the jobs behind it where a filter shows them."""

    def cell(count: int, *, alarm: bool = False, **filters: str) -> dict[str, Any]:
        query = urlencode({"queue": queue.name, **filters}) if filters else ""
        return {"count": count, "query": query, "alarm": alarm, "capped": alarm and count >= MOST_FAILURES}

    return [
        cell(queue.pending, status="pending"),
        cell(queue.retry, status="retry"),
        cell(queue.running, status="running"),
        cell(queue.blocked, status="blocked"),
        cell(queue.done_hour, status="done", finished="hour"),
        cell(queue.retried_hour),
        cell(queue.failed_hour, alarm=True, status="failed", finished="hour"),
        cell(queue.retried_day),
        cell(queue.failed_day, alarm=True, status="failed", finished="day"),
    ]
