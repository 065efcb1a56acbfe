"""Set the tags of a job on its events, if the project uses Sentry.

Sentry's logging integration turns each ERROR line into an event, so the line of a failed job needs only tags
and its own scope: the data and breadcrumbs of one job must not appear on the events of another. This package
does not depend on Sentry. It uses the module if the project has imported it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

FLUSH_SECONDS = 2.0


def job_scope(job: Any, scope: Any = None) -> AbstractContextManager[Any]:
    """Enter ``scope``, that of a job's run, or a new one with its tags. Its value is None without Sentry."""
    sdk = _sdk()
    if sdk is None:
        return nullcontext()
    if scope is None:
        return _new_scope(sdk, job)
    used: AbstractContextManager[Any] = sdk.scope.use_isolation_scope(scope)
    return used


def in_use() -> bool:
    """Return whether the project uses Sentry."""
    return _sdk() is not None


def flush() -> None:
    """Send what Sentry has collected, before the process ends without running its exit handlers."""
    sdk = _sdk()
    if sdk is not None:
        sdk.flush(FLUSH_SECONDS)


def _sdk() -> Any:
    """Return Sentry's module if it is in use. Versions before 2 have no scopes of this kind."""
    sdk: Any = sys.modules.get("sentry_sdk")
    if sdk is None:
        return None
    # Race: another thread may be importing it, and then the names do not exist yet.
    is_initialized = getattr(sdk, "is_initialized", None)
    return sdk if is_initialized is not None and is_initialized() else None


@contextmanager
def _new_scope(sdk: Any, job: Any) -> Iterator[Any]:
    with sdk.isolation_scope() as scope:
        scope.clear_breadcrumbs()  # they belong to the thread, and are about other jobs
        scope.set_tag("pgqueue.task", job.task_path)
        scope.set_tag("pgqueue.queue", job.queue_name)
        scope.set_tag("pgqueue.job_id", str(job.id))
        yield scope
