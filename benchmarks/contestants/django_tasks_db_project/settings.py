"""The settings that its documentation gives. CONN_MAX_AGE comes from the environment."""

from __future__ import annotations

from benchmarks.settings import DATABASES, DEFAULT_AUTO_FIELD, SECRET_KEY, USE_TZ

__all__ = ["DATABASES", "DEFAULT_AUTO_FIELD", "INSTALLED_APPS", "SECRET_KEY", "TASKS", "USE_TZ"]

INSTALLED_APPS = ["django_tasks_db", "benchmarks"]
TASKS = {"default": {"BACKEND": "django_tasks_db.DatabaseBackend", "QUEUES": ["default"]}}
