"""The policy of a task as a row of a schedule keeps it.

The round that fires a schedule may run in a supervisor that cannot import the task: another project may use
the same database. So the processes that can import it write its policy into the row: when they synchronize,
and when the schedule is saved. A job without a policy gets it from the worker that claims it.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from .. import conf
from ..definition import find_task
from ..exceptions import UnknownTask
from ..payload import encode_metadata

if TYPE_CHECKING:
    from ..definition import Task

__all__ = ["known_policy", "policy_of"]


def known_policy(task_path: str) -> dict[str, Any] | None:
    """Return the policy of the task at a path; None if this process cannot import it."""
    try:
        return policy_of(find_task(task_path))
    except UnknownTask:
        return None


def policy_of(task: Task[..., Any]) -> dict[str, Any]:
    """Return what the task and the settings say about the jobs of this task, as JSON."""
    settings = conf.current()
    expires_after = task.expires_after
    return {
        "task_path": task.module_path,
        "queue_name": task.queue_name,
        "priority": task.priority,
        "max_attempts": task.max_attempts or settings.max_attempts,
        "timeout": task.timeout or settings.timeout,
        "on_lost": task.on_lost,
        "expires_after": None if expires_after is None else expires_after.total_seconds(),
        "metadata": json.loads(encode_metadata(task.metadata)),
    }
