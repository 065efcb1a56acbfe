"""Settings with hooks, for processes that start with a new interpreter."""

from __future__ import annotations

from tests.settings import *  # noqa: F403

PGQUEUE = {"AROUND_ATTEMPT": ["tests.app.hooks.outer"]}
