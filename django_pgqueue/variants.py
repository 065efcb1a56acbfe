"""The options of one call: what ``task.using(...)`` changes in a task.

None leaves an option unchanged. Each value is validated and returned in the form in which the task stores it.
"""

from __future__ import annotations

from dataclasses import fields
from functools import cache
from typing import TYPE_CHECKING, Any

from . import grouping, validation
from .concurrency import checked_key
from .unique import check_unique, with_key

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .compat import DjangoTask

__all__ = ["changed_values", "differences", "field_names", "set_values"]


@cache
def field_names(cls: type[Any]) -> tuple[str, ...]:
    """Return the names of the fields of a class of tasks."""
    return tuple(each.name for each in fields(cls))


def set_values(task: DjangoTask[..., Any], **values: Any) -> None:
    """Set fields of a task that is being made. Later it is immutable."""
    for name, value in values.items():
        object.__setattr__(task, name, value)


def changed_values(task: DjangoTask[..., Any], *, unique_key: str | None, **given: Any) -> dict[str, Any]:
    """Return the new values of the fields of `task`. Raise InvalidTask for invalid ones."""
    changes: dict[str, Any] = {}
    for name, value in given.items():
        if value is not None:
            changes.update(_CHANGES[name](task, value))
    # Not in the table: the key goes into the new `unique` of the call, or into that of the task.
    if unique_key is not None:
        changes["unique"] = with_key(changes.get("unique", getattr(task, "unique", None)), unique_key)
    return changes


def differences(one: DjangoTask[..., Any], other: DjangoTask[..., Any]) -> dict[str, Any]:
    """Return the values of `other` that `one` does not have."""
    names = (each.name for each in fields(other) if each.compare and each.name != "func")
    return {name: getattr(other, name) for name in names if getattr(other, name) != getattr(one, name)}


def _unique(task: Any, value: Any) -> Mapping[str, Any]:
    return {"unique": check_unique(value, task.func, takes_context=task.takes_context)}


def _run_after(task: Any, value: Any) -> Mapping[str, Any]:
    moment, delta = validation.run_after(value)
    return {"run_after": moment, "run_after_delta": delta}


_CHANGES: dict[str, Any] = {
    "priority": lambda task, value: {"priority": validation.priority(value)},
    "queue_name": lambda task, value: {"queue_name": validation.queue_name(value)},
    "run_after": _run_after,
    "backend": lambda task, value: {"backend": validation.alias("backend", value)},
    "metadata": lambda task, value: {"metadata": {**task.metadata, **validation.metadata(value)}},
    "concurrency_key": lambda task, value: {"concurrency_key": checked_key(value)},
    "group": lambda task, value: {"group_key": grouping.checked_key(value)},
    "unique": _unique,
    "database": lambda task, value: {"database": validation.alias("database", value)},
}
