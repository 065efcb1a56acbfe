"""Django settings for django-ox. ``CONN_MAX_AGE`` comes from the environment."""

from __future__ import annotations

import os
from urllib.parse import unquote, urlsplit

_url = urlsplit(os.environ["DATABASE_URL"])

SECRET_KEY = "only for benchmarks"  # noqa: S105
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
INSTALLED_APPS = ["django_ox", "benchmarks"]
TASKS = {"default": {"BACKEND": "django_ox.backend.OxBackend"}}
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "HOST": unquote(_url.hostname or ""),
        "PORT": str(_url.port or ""),
        "USER": unquote(_url.username or ""),
        "PASSWORD": unquote(_url.password or ""),
        "NAME": _url.path[1:],
        "CONN_MAX_AGE": int(os.environ.get("CONN_MAX_AGE", "0")),
    }
}
