"""The configuration of the app. Its label is `app`."""

from __future__ import annotations

import json
import os
from importlib import import_module

from django.apps import AppConfig

#: A test sets other constants of the supervisor here, as JSON: by module and name, a value or changed fields.
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
