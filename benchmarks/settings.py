"""Django settings of the benchmarks: the database that DATABASE_URL names, and no app except the queue."""

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
