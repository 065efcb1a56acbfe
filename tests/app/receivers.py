"""Receivers of alerts, for workers that tests start."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .models import Entry

if TYPE_CHECKING:
    from django_pgqueue.alerts import Alert


def write(alert: Alert) -> None:
    """Write a row that a test can wait for."""
    Entry.objects.create(key=f"{alert.kind} {'over' if alert.is_over else 'raised'}", note=alert.text)
