"""The configuration of the app. Its label is `app`."""

from __future__ import annotations

from django.apps import AppConfig


class TestAppConfig(AppConfig):
    """The app as the queue sees a user's app."""

    name = "tests.app"
    label = "app"
    default_auto_field = "django.db.models.BigAutoField"
