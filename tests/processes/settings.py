"""The settings of the worker processes that tests start: the tests' settings with the databases of this run.

pytest-django changes the names of the test databases. The names are passed in the environment, and so are the
settings of the queue that a test needs.
"""

from __future__ import annotations

import json
import os

from tests.settings import *  # noqa: F403

# Only what the tasks need: each process imports it.
INSTALLED_APPS = ["django_pgqueue", "tests.app"]
MIDDLEWARE = []
TEMPLATES = []
ROOT_URLCONF = "tests.processes"

DATABASES = json.loads(os.environ["TEST_DATABASES"])
PGQUEUE = {**PGQUEUE, **json.loads(os.environ.get("TEST_PGQUEUE", "{}"))}  # noqa: F405
