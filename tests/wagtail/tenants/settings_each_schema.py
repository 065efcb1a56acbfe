"""The same project with the tables of the queue in the schema of each tenant, where no worker runs."""

from __future__ import annotations

from .settings import *  # noqa: F403
from .settings import SHARED_APPS as SHARED, TENANT_APPS as THEIRS

SHARED_APPS = [app for app in SHARED if app != "django_pgqueue"]
TENANT_APPS = [*THEIRS, "django_pgqueue"]
