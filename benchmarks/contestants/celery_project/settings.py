"""The settings of Django and, with the prefix CELERY_, those of Celery. The contestant says why."""

from __future__ import annotations

import os

from benchmarks.settings import DATABASES, DEFAULT_AUTO_FIELD, SECRET_KEY, USE_TZ

__all__ = ["DATABASES", "DEFAULT_AUTO_FIELD", "INSTALLED_APPS", "SECRET_KEY", "USE_TZ"]

INSTALLED_APPS = ["benchmarks"]

CELERY_BROKER_URL = os.environ["CELERY_BROKER_URL"]
CELERY_IMPORTS = ["benchmarks.contestants.celery_project.tasks"]
if "BENCHMARK_BEST" in os.environ:
    CELERY_TASK_IGNORE_RESULT = True
    CELERY_WORKER_PREFETCH_MULTIPLIER = 128
    CELERY_WORKER_DISABLE_RATE_LIMITS = True
    CELERY_DB_REUSE_MAX = 1_000_000
