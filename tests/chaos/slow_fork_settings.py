"""Delay each forked child before anything else runs in it, to make a race more likely."""

from __future__ import annotations

import os
import time

from tests.processes.settings import *  # noqa: F403

os.register_at_fork(after_in_child=lambda: time.sleep(0.2))
