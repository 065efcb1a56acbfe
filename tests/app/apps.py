"""The configuration of the app. Its label is `app`."""

from __future__ import annotations

import json
import os
from importlib import import_module

from django.apps import AppConfig

#: A test sets this for a command whose supervisor should kill a process sooner than it usually does.
KILL_AFTER = "TEST_KILL_AFTER"
#: And this for other constants of the supervisor, as JSON: by module and name, a value or changed fields.
CONSTANTS = "TEST_CONSTANTS"


class TestAppConfig(AppConfig):
    """The app as the queue sees a user's app."""

    name = "tests.app"
    label = "app"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Change constants that settings cannot change."""
        for name, value in json.loads(os.environ.get(CONSTANTS, "{}")).items():
            module, _, constant = name.partition(".")
            place = import_module(f"django_pgqueue.worker.supervisor.{module}")
            new = getattr(place, constant)._replace(**value) if isinstance(value, dict) else value
            setattr(place, constant, new)
        if seconds := os.environ.get(KILL_AFTER):
            from django_pgqueue.worker.supervisor import supervisor

            supervisor.KILL_AFTER = float(seconds)
