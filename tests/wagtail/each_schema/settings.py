"""The settings. The queue is an app of the tenants."""

from __future__ import annotations

from tests.wagtail.tenants.settings import *  # noqa: F403
from tests.wagtail.tenants.settings import SHARED_APPS as SHARED
from tests.wagtail.tenants.settings import TENANT_APPS as THEIRS

SHARED_APPS = [app for app in SHARED if app != "django_pgqueue"]
TENANT_APPS = [*THEIRS, "django_pgqueue"]
