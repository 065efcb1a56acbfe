"""Django settings of the benchmarks: the database that DATABASE_URL names, and no apps except the queue.

A benchmark may set ``CONN_MAX_AGE`` and ``IDLE_CONNECTION_TIMEOUT`` in the environment of a worker, as
Python literals.
"""

from __future__ import annotations

import ast
import json
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
if "S1_URL" in os.environ:
    DATABASES["s1"] = {**DATABASES["default"], **environ.Env.db_url_config(os.environ["S1_URL"])}
PGQUEUE = {"TASK_MODULES": ["tasks", "flight_tasks"]}
if "SHARD_URLS" in os.environ:
    for _alias, _url in json.loads(os.environ["SHARD_URLS"]).items():
        DATABASES.setdefault(_alias, {**DATABASES["default"], **environ.Env.db_url_config(_url)})
    PGQUEUE["SHARDS"] = list(DATABASES)
if "IDLE_CONNECTION_TIMEOUT" in os.environ:
    PGQUEUE["IDLE_CONNECTION_TIMEOUT"] = ast.literal_eval(os.environ["IDLE_CONNECTION_TIMEOUT"])
