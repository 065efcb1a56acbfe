"""The options of one call: what ``task.using(...)`` changes in a task.

None leaves an option unchanged. Each value is validated and returned in the form in which the task stores it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import validation

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .compat import DjangoTask

__all__ = ["changed_values"]


def changed_values(task: DjangoTask[..., Any], **given: Any) -> dict[str, Any]:
    """Return the new values of the fields of `task`. Raise InvalidTask for invalid ones."""
    changes: dict[str, Any] = {}
    for name, value in given.items():
        if value is not None:
            changes.update(_CHANGES[name](task, value))
    return changes


def _run_after(task: Any, value: Any) -> Mapping[str, Any]:
    moment, delta = validation.run_after(value)
    return {"run_after": moment, "run_after_delta": delta}


_CHANGES: dict[str, Any] = {
    "priority": lambda task, value: {"priority": validation.priority(value)},
    "queue_name": lambda task, value: {"queue_name": validation.queue_name(value)},
    "run_after": _run_after,
    "backend": lambda task, value: {"backend": validation.alias("backend", value)},
    "metadata": lambda task, value: {"metadata": {**task.metadata, **validation.metadata(value)}},
    "database": lambda task, value: {"database": validation.alias("database", value)},
}
