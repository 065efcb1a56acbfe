"""The modules that every forked command has already imported: those of Django and psycopg that read no
settings.
"""

from __future__ import annotations

from importlib import import_module

for _name in (
    "asyncio",
    "django.contrib.postgres.apps",
    "django.core.management",
    "django.core.management.commands.check",
    "django.db.backends.postgresql.base",
    "django.db.models",
    "django.template.defaultfilters",
    "django.template.loader",
    "django.urls",
    "django.utils.translation.trans_real",
    "environ",
    "psycopg",
):
    import_module(_name)
