"""The settings. The queue is a shared app."""

from __future__ import annotations

from tests.settings import DATABASES as THEIRS

SECRET_KEY = "only for tests"
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
DATABASES = {
    "default": {**THEIRS["default"], "ENGINE": "django_tenants.postgresql_backend"},
    "other": THEIRS["other"],
}
DATABASE_ROUTERS = ["django_tenants.routers.TenantSyncRouter"]
TENANT_MODEL = "customers.Customer"
TENANT_DOMAIN_MODEL = "customers.Domain"

SHARED_APPS = [
    "django_tenants",
    "tests.wagtail.tenants.customers",
    "django.contrib.contenttypes",
    "django_pgqueue",
]
TENANT_APPS = ["tests.wagtail.tenants.shop"]
INSTALLED_APPS = [*SHARED_APPS, *TENANT_APPS]

TASKS = {"default": {"BACKEND": "django_pgqueue.backend.PgQueueBackend"}}
# The schema travels with each job.
EXTRA_SET_TENANT_METHOD_PATH = "tests.wagtail.tenants.carrying.remember"
PGQUEUE = {"CONTEXT": ["language", "trace", "tests.wagtail.tenants.carrying.schema"]}
