"""A project that finds some of its modules by a path relative to the working directory."""

from __future__ import annotations

import os
import sys

from tests.processes.settings import *  # noqa: F403

sys.path.append(os.environ["TEST_RELATIVE_PATH"])
INSTALLED_APPS = [*INSTALLED_APPS, "found_late"]  # noqa: F405
PGQUEUE = {**PGQUEUE, "TASK_MODULES": [*TASK_MODULES, "late"]}  # noqa: F405
