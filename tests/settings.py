"""Settings of the test suite: two databases on the server that DATABASE_URL names.

If DATABASE_URL is not set, `conftest.py` starts a server for the run and fills in its address. Commands that
need no database (`makemigrations --check` offline, type checkers) work without it.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import environ

# no server listens on this port, so connections are refused at once
NO_SERVER = "postgresql://postgres@127.0.0.1:1/postgres"

SECRET_KEY = "only for tests"
USE_TZ = True
TIME_ZONE = "UTC"
ROOT_URLCONF = "tests.urls"
STATIC_URL = "static/"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
SESSION_ENGINE = "django.contrib.sessions.backends.signed_cookies"  # no statement for each page


def databases(url: str) -> dict[str, dict[str, Any]]:
    """DATABASES for a server: `default` is the database of the URL, `other` a second one beside it."""
    default: dict[str, Any] = {**environ.Env.db_url_config(url), "ENGINE": "django.db.backends.postgresql"}
    return {"default": default, "other": {**default, "NAME": f"{default['NAME']}_other"}}


DATABASES = databases(os.environ.get("DATABASE_URL") or NO_SERVER)

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.postgres",
    "django.contrib.sessions",
    "django_pgqueue",
    "tests.app",
    "tests.receipts",
    "example_project.search",
]

# There is no TASKS: most tests are about our own decorator, and those about backends override it.
SILENCED_SYSTEM_CHECKS = ["pgqueue.W001"]

MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]

# The tests import the modules whose tasks they use. Their processes find them.
TASK_MODULES = [
    "tasks", "async_tasks", "context_tasks", "deadly_tasks", "forking_tasks",
    "hostile_tasks", "inline_tasks", "ledger_tasks", "limit_tasks", "poison_tasks", "process_tasks",
    "secret_tasks", "step_tasks", "timing_tasks", "unique_tasks", "worker_tasks",
]  # fmt: skip
PGQUEUE = {} if "pytest" in sys.modules else {"TASK_MODULES": TASK_MODULES}
