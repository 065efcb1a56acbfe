"""The modules that every forked command has already imported: those of Django, psycopg and others that
read no settings.
"""

from __future__ import annotations

from importlib import import_module

for _name in (
    "asyncio", "cronsim", "django.contrib.postgres.apps", "django.core.management",
    "django.core.management.commands.check", "django.db.backends.postgresql.base",
    "django.db.migrations.executor", "django.db.models", "django.template.defaultfilters",
    "django.template.loader", "django.urls", "django.utils.translation.trans_real", "django.views.debug",
    "environ", "logging.config", "psycopg",
):  # fmt: skip
    import_module(_name)
