"""Settings with hooks, for processes that start with a new interpreter."""

from __future__ import annotations

from tests.settings import *  # noqa: F403
from tests.settings import PGQUEUE as COMMON

PGQUEUE = {**COMMON, "AROUND_ATTEMPT": ["tests.app.hooks.outer"]}
