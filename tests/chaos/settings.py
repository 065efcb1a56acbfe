"""The settings of a worker with modules at a relative path, or with slow forks, by its environment."""

from __future__ import annotations

import os
import sys
import time

from tests.processes.settings import *  # noqa: F403

if path := os.environ.get("TEST_RELATIVE_PATH"):  # relative to the working directory
    sys.path.append(path)
    INSTALLED_APPS = [*INSTALLED_APPS, "found_late"]  # noqa: F405
    PGQUEUE = {**PGQUEUE, "TASK_MODULES": [*TASK_MODULES, "late"]}  # noqa: F405
if "TEST_SLOW_FORK" in os.environ:  # makes races before the first line of a child more likely
    os.register_at_fork(after_in_child=lambda: time.sleep(0.2))
