"""The configuration of the app. Its label is `app`."""

from __future__ import annotations

from django.apps import AppConfig


class TestAppConfig(AppConfig):
    """What a user's app looks like to the queue."""

    name = "tests.app"
    label = "app"
    default_auto_field = "django.db.models.BigAutoField"
