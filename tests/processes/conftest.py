"""Start ``runqueueworker`` in a separate process, and observe it from outside."""

from __future__ import annotations

from tests.support.commands import forks, start  # noqa: F401 - fixtures
