"""Celery's application, as its documentation writes it for Django."""

from __future__ import annotations

import celery

__all__ = ["app"]

app = celery.Celery("benchmarks")
app.config_from_object("django.conf:settings", namespace="CELERY")
