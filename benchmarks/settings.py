"""Django settings of the benchmarks: the database that DATABASE_URL names, and no apps except the queue.

A benchmark may set ``CONN_MAX_AGE`` and ``IDLE_CONNECTION_TIMEOUT`` in the environment of a worker, as
Python literals.
"""

from __future__ import annotations

import ast
import os

import environ

SECRET_KEY = "only for benchmarks"  # noqa: S105
USE_TZ = True
TIME_ZONE = "UTC"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
INSTALLED_APPS = ["django_pgqueue", "benchmarks"]
TASKS = {"default": {"BACKEND": "django_pgqueue.backend.PgQueueBackend"}}
DATABASES = {
    "default": {
        **environ.Env.db_url_config(os.environ["DATABASE_URL"]),
        "ENGINE": "django.db.backends.postgresql",
        "CONN_MAX_AGE": ast.literal_eval(os.environ.get("CONN_MAX_AGE", "0")),
    }
}
PGQUEUE = {"TASK_MODULES": ["tasks", "flight_tasks"]}
if "IDLE_CONNECTION_TIMEOUT" in os.environ:
    PGQUEUE["IDLE_CONNECTION_TIMEOUT"] = ast.literal_eval(os.environ["IDLE_CONNECTION_TIMEOUT"])
