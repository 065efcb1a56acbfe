"""Django's settings for the adapter of this project: what a project that uses the queue has, and no more."""

from __future__ import annotations

import os

import environ

SECRET_KEY = "only for benchmarks"  # noqa: S105
USE_TZ = True
TIME_ZONE = "UTC"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
INSTALLED_APPS = ["django_pgqueue", "benchmarks.public"]
TASKS = {"default": {"BACKEND": "django_pgqueue.backend.PgQueueBackend"}}
DATABASES = {
    "default": {
        **environ.Env.db_url_config(os.environ["DATABASE_URL"]),
        "ENGINE": "django.db.backends.postgresql",
        "CONN_MAX_AGE": None,
    }
}
