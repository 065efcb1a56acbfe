"""The configuration of the app. Its label is `app`."""

from __future__ import annotations

import os

from django.apps import AppConfig

#: A test sets this for a command whose supervisor should kill a process sooner than it usually does.
KILL_AFTER = "TEST_KILL_AFTER"


class TestAppConfig(AppConfig):
    """The app as the queue sees a user's app."""

    name = "tests.app"
    label = "app"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Change the constant that settings cannot change."""
        if seconds := os.environ.get(KILL_AFTER):
            from django_pgqueue.worker.supervisor import supervisor

            supervisor.KILL_AFTER = float(seconds)
