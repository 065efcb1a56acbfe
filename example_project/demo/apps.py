"""The app of the demonstration. It contains a command, and tasks with schedules."""

from __future__ import annotations

from django.apps import AppConfig


class DemoConfig(AppConfig):
    name = "example_project.demo"
