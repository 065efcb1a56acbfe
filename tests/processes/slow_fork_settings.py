"""A child that has just been forked takes its time before anything else runs in it, to widen a race."""

from __future__ import annotations

import os
import time

from .settings import *  # noqa: F403

os.register_at_fork(after_in_child=lambda: time.sleep(0.2))
