"""The settings. The queue is an app of the schema public."""

from __future__ import annotations

from tests.settings import DATABASES as THEIRS

SECRET_KEY = "only for tests"
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
DATABASES = {
    "default": {**THEIRS["default"], "ENGINE": "django_pgschemas.postgresql"},
    "other": THEIRS["other"],
}
DATABASE_ROUTERS = ["django_pgschemas.routers.TenantAppsRouter"]
MIGRATION_MODULES = {"shop": "tests.wagtail.tenants.shop.migrations"}  # both have the same orders
ROOT_URLCONF = "tests.wagtail.pgschemas.urls"
SESSION_ENGINE = "django.contrib.sessions.backends.signed_cookies"  # else it wants the app of sessions

PUBLIC_APPS = [
    "django_pgschemas",
    "django.contrib.contenttypes",
    "tests.wagtail.pgschemas.customers",
    "django_pgqueue",
]
CUSTOMER_APPS = ["tests.wagtail.pgschemas.shop"]
INSTALLED_APPS = [*PUBLIC_APPS, *CUSTOMER_APPS]
TENANTS = {
    "public": {"APPS": PUBLIC_APPS},
    "default": {
        "TENANT_MODEL": "customers.Customer",
        "APPS": CUSTOMER_APPS,
        "URLCONF": "tests.wagtail.pgschemas.urls",
    },
}

TASKS = {"default": {"BACKEND": "django_pgqueue.backend.PgQueueBackend"}}
PGQUEUE = {
    "BEFORE_ENQUEUE": ["tests.wagtail.pgschemas.by_tenant.note_schema"],
    "AROUND_ATTEMPT": ["tests.wagtail.pgschemas.by_tenant.in_schema"],
}
