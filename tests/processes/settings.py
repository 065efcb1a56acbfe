"""The settings of the worker processes that tests start: the tests' settings with the databases of this run.

pytest-django changes the names of the test databases. The names are passed in the environment, and so are the
settings of the queue that a test needs.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from django_pgqueue.worker import spawn
from tests.settings import *  # noqa: F403

# Only what the tasks need: each process imports it.
INSTALLED_APPS = ["django_pgqueue", "tests.app"]
MIDDLEWARE = []
TEMPLATES = []
ROOT_URLCONF = "tests.processes"

DATABASES = json.loads(os.environ["TEST_DATABASES"])
PGQUEUE = {**PGQUEUE, **json.loads(os.environ.get("TEST_PGQUEUE", "{}"))}  # noqa: F405

if path := os.environ.get("TEST_RELATIVE_PATH"):  # relative to the working directory
    sys.path.append(path)
    INSTALLED_APPS = [*INSTALLED_APPS, "found_late"]
    PGQUEUE = {**PGQUEUE, "TASK_MODULES": [*TASK_MODULES, "late"]}  # noqa: F405
if linger := os.environ.get("TEST_LINGER"):  # seconds
    spawn.LINGER = float(linger)
if "TEST_SLOW_FORK" in os.environ:  # makes races before the first line of a child more likely
    os.register_at_fork(after_in_child=lambda: time.sleep(0.2))


def _wait_for(path: Path) -> None:
    while not path.exists():
        time.sleep(0.01)


# Of the worker processes of a command, let one begin at a signal of the test, and the others fail at another.
if "TEST_STARTS_SLOWLY" in os.environ and "django_pgqueue.worker" in sys.orig_argv:
    folder = Path(os.environ["TEST_STARTS_SLOWLY"])
    _wait_for(folder / "begin")
    try:
        (folder / "first").touch(exist_ok=False)
    except FileExistsError:
        _wait_for(folder / "fail")
        raise LookupError("no room") from None
