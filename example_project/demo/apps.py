"""The app of the demonstration: nothing but its command."""

from __future__ import annotations

from django.apps import AppConfig


class DemoConfig(AppConfig):
    name = "example_project.demo"
