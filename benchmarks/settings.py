"""Django settings of the benchmarks: one database, named by DATABASE_URL, and nothing beside the queue."""

from __future__ import annotations

import os

import environ

SECRET_KEY = "only for benchmarks"  # noqa: S105
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
INSTALLED_APPS = ["django_pgqueue"]
DATABASES = {
    "default": {
        **environ.Env.db_url_config(os.environ["DATABASE_URL"]),
        "ENGINE": "django.db.backends.postgresql",
        "CONN_MAX_AGE": None,
    }
}
