"""The app: its label, its name in the admin, its system checks."""

from __future__ import annotations

from django.apps import AppConfig


class PgQueueConfig(AppConfig):
    """``INSTALLED_APPS = [..., "django_pgqueue"]``."""

    name = "django_pgqueue"
    verbose_name = "Job queue"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Register the system checks."""
        from . import checks, checks_database  # noqa: F401
