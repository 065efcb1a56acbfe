"""Sentry, where the project has set it up: what belongs to a job carries the job's tags.

Sentry's logging integration makes an event of each ERROR line, so the line of a failed job needs nothing but
tags, and a scope of its own: what one job has set, and its breadcrumbs, must not show up on the events of
another. This package does not depend on Sentry. It uses the module if somebody else has imported it.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from ..lifecycle.claim import Claimed

__all__ = ["flush", "job_scope", "report_scope"]

FLUSH_SECONDS = 2.0

_NO_SCOPE: AbstractContextManager[Any] = nullcontext()


def job_scope(row: Claimed) -> AbstractContextManager[Any]:
    """Around the run of a job: a scope with its tags, which is returned; None without Sentry."""
    sdk = _sdk()
    return _NO_SCOPE if sdk is None else _new_scope(sdk, row)


def report_scope(row: Claimed, scope: Any) -> AbstractContextManager[Any]:
    """Around a report about a job. ``scope``: that of its run, if it ran in this process."""
    sdk = _sdk()
    if sdk is None:
        return _NO_SCOPE
    if scope is None:
        return _new_scope(sdk, row)
    used: AbstractContextManager[Any] = sdk.scope.use_isolation_scope(scope)
    return used


def flush() -> None:
    """Send what Sentry has collected, before the process ends without its exit handlers."""
    sdk = _sdk()
    if sdk is not None:
        sdk.flush(FLUSH_SECONDS)


def _sdk() -> Any:
    """The module of Sentry if it is in use. Before version 2 it had no scopes of this kind."""
    sdk: Any = sys.modules.get("sentry_sdk")
    # Race: another thread may be importing it; then the names are not there yet.
    is_initialized = getattr(sdk, "is_initialized", None)
    return sdk if is_initialized is not None and is_initialized() else None


@contextmanager
def _new_scope(sdk: Any, row: Claimed) -> Iterator[Any]:
    with sdk.isolation_scope() as scope:
        scope.clear_breadcrumbs()  # the thread's: they tell of other jobs
        scope.set_tag("pgqueue.task", row.task_path)
        scope.set_tag("pgqueue.queue", row.queue_name)
        scope.set_tag("pgqueue.job_id", str(row.id))
        yield scope
