"""The settings of the tests, with static files, CSRF checks, and a content security policy."""

from __future__ import annotations

import os

from tests.settings import *  # noqa: F403
from tests.settings import INSTALLED_APPS as THEIRS, MIDDLEWARE as USUAL

INSTALLED_APPS = [*THEIRS, "django.contrib.staticfiles"]
MIDDLEWARE = [
    "tests.browser.middleware.strict_policy",
    "tests.browser.middleware.zone_of_the_user",
    *USUAL[:1],
    "django.middleware.csrf.CsrfViewMiddleware",
    *USUAL[1:],
]
ALLOWED_HOSTS = ["*"]
DEBUG = False

# The driver has an event loop on this thread, where the tests use the ORM between its calls.
os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "true"
