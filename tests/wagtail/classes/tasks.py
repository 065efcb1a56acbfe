"""A task that depends on the settings."""

from __future__ import annotations

from django.conf import settings

from django_pgqueue import task


@task
def where() -> str:
    """Return the time zone of the settings."""
    return settings.TIME_ZONE
