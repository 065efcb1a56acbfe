"""The app of the search engine."""

from __future__ import annotations

from django.apps import AppConfig


class SearchConfig(AppConfig):
    name = "example_project.search"
    verbose_name = "search engine"
