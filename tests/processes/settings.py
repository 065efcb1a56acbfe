"""The settings of the worker processes that tests start: those of the tests, on the databases of this run.

pytest-django gives the test databases names of their own, which travel in the environment; so do the settings
of the queue that a test wants.
"""

from __future__ import annotations

import json
import os

from tests.settings import *  # noqa: F403

# Only what the tasks need: each process imports it.
INSTALLED_APPS = ["django_pgqueue", "tests.app"]
MIDDLEWARE = []
TEMPLATES = []
ROOT_URLCONF = "tests.processes.no_urls"

DATABASES = json.loads(os.environ["TEST_DATABASES"])
PGQUEUE = json.loads(os.environ.get("TEST_PGQUEUE", "{}"))
